# libibvmigsm.so: OpenSM's event plugin. OpenSM's symbols come from the program that loads it.
OSM_CFLAGS := -isystem /usr/include/infiniband
SM_PLUGIN_SRC := sm-helper/plugin.c sm-helper/plugin_view.c sm-helper/plugin_tables.c \
                 sm-helper/plugin_paths.c sm-helper/plugin_records.c sm-helper/plugin_lfts.c sm-helper/plugin_wire.c \
                 sm-helper/plugin_assign.c sm-helper/plugin_parked.c sm-helper/plugin_homes.c sm-helper/plugin_seen.c \
                 sm-helper/plugin_guids.c sm-helper/plugin_guid_smps.c sm-helper/plugin_alias.c sm-helper/plugin_engine.c sm-helper/plugin_master.c sm-helper/plugin_keep.c sm-helper/plugin_guid2lid.c sm-helper/takeover.c sm-helper/proto_check.c
# nodelete: OpenSM closes a plugin that has not come up, and our handlers may be among its own by then.
$(eval $(call shared,libibvmigsm,$(SM_PLUGIN_SRC),$(VSWITCH) $(COMMON) -lpthread,$(OSM_CFLAGS),-Wl$(comma)-z$(comma)nodelete))

# ibvmig-sm: registry, REST, verification.
SM_BACKENDS := sm-helper/backend_plugin.c sm-helper/look.c sm-helper/backend_umad.c sm-helper/umad_guids.c sm-helper/backend_ufm.c sm-helper/ufm_http.c sm-helper/backend_none.c \
               sm-helper/discover.c
SM_SRC := sm-helper/main.c sm-helper/cli.c sm-helper/listen.c sm-helper/rest.c sm-helper/rest_vguids.c sm-helper/rest_loads.c sm-helper/rest_moves.c sm-helper/rest_ranks.c sm-helper/actions.c sm-helper/leaks.c sm-helper/verify.c sm-helper/notice.c sm-helper/ops.c sm-helper/ops_settle.c sm-helper/dynamic.c sm-helper/ops_bind.c sm-helper/ops_batch.c sm-helper/ops_move.c sm-helper/ops_shared.c sm-helper/parked.c sm-helper/rest_parked.c \
          sm-helper/client.c $(SM_BACKENDS) sm-helper/registry.c sm-helper/registry_claim.c sm-helper/registry_replica.c sm-helper/probe.c sm-helper/probe_lfts.c sm-helper/probe_perf.c sm-helper/lft_reader.c \
          sm-helper/path_table.c sm-helper/path_service.c sm-helper/path_wire.c sm-helper/path_server.c sm-helper/outbox.c \
          sm-helper/peer.c sm-helper/rest_peer.c
$(eval $(call program,ibvmig-sm,$(SM_SRC),$(VSWITCH) $(NET_LIBS) -lsqlite3 -libmad -libumad))
$(eval $(call testtool,fabric_setlft,tests/integration/fabric_setlft.c,-libmad -libumad))
$(eval $(call testtool,fabric_sa,tests/integration/fabric_sa.c,-libmad -libumad))
$(eval $(call shared,no_plugin_thread,tests/integration/no_plugin_thread.c,-ldl))
$(eval $(call testtool,fabric_ping,tests/integration/fabric_ping.c,-libmad -libumad))
$(eval $(call testprogram,test_sm_proto,tests/unit/test_sm_proto.c sm-helper/proto_check.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_sm_registry,tests/unit/test_sm_registry.c sm-helper/registry.c sm-helper/registry_claim.c sm-helper/registry_replica.c,$(COMMON_LIBS) -lsqlite3))
$(eval $(call testprogram,test_sm_paths,tests/unit/test_sm_paths.c sm-helper/path_table.c sm-helper/path_wire.c,$(COMMON_LIBS)))
$(eval $(call testtool,umad_lfts,tests/bench/umad_lfts.c,$(COMMON) -libumad))
$(eval $(call testtool,sa_flood,tests/bench/sa_flood.c sm-helper/path_wire.c,$(COMMON) -libumad -lm))
$(eval $(call testprogram,test_fuzz_smproto,tests/fuzz/replay.c tests/fuzz/fuzz_smproto.c sm-helper/proto_check.c sm-helper/path_wire.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_mad,tests/fuzz/replay.c tests/fuzz/fuzz_mad.c sm-helper/probe.c sm-helper/probe_lfts.c sm-helper/probe_perf.c,$(COMMON_LIBS) -libmad -libumad))
$(eval $(call testprogram,test_sm_outbox,tests/unit/test_sm_outbox.c sm-helper/outbox.c,$(COMMON_LIBS) -lpthread))
$(eval $(call testprogram,test_sm_backend,tests/unit/test_sm_backend.c $(filter-out sm-helper/main.c,$(SM_SRC)),$(VSWITCH) $(NET_LIBS) -lsqlite3 -libmad -libumad))
$(eval $(call testprogram,test_sm_replica,tests/unit/test_sm_replica.c sm-helper/registry.c sm-helper/registry_claim.c sm-helper/registry_replica.c,$(COMMON_LIBS) -lsqlite3))
$(eval $(call testprogram,test_sm_takeover,tests/unit/test_sm_takeover.c sm-helper/takeover.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_sm_leaks,tests/unit/test_sm_leaks.c sm-helper/leaks.c,$(NET_LIBS)))
$(eval $(call testprogram,test_sm_moves,tests/unit/test_sm_moves.c sm-helper/parked.c sm-helper/ops.c sm-helper/ops_settle.c sm-helper/dynamic.c sm-helper/ops_bind.c sm-helper/ops_batch.c sm-helper/ops_move.c sm-helper/ops_shared.c sm-helper/lft_reader.c sm-helper/registry.c sm-helper/registry_replica.c,$(VSWITCH) $(COMMON_LIBS) -lsqlite3))
$(eval $(call testprogram,test_sm_parked,tests/unit/test_sm_parked.c sm-helper/parked.c,$(VSWITCH) $(COMMON_LIBS)))
