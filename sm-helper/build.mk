# libibvmigsm.so: OpenSM's event plugin. OpenSM's symbols come from the program that loads it.
OSM_CFLAGS := -isystem /usr/include/infiniband
SM_PLUGIN_SRC := $(sort $(wildcard sm-helper/plugin/*.c)) sm-helper/proto/check.c
# nodelete: OpenSM closes a plugin that has not come up, and our handlers may be among its own by then.
$(eval $(call shared,libibvmigsm,$(SM_PLUGIN_SRC),$(VSWITCH) $(COMMON) -lpthread,$(OSM_CFLAGS),-Wl$(comma)-z$(comma)nodelete))

# ibvmig-sm: registry, REST, verification.
SM_DIRS := registry fabric backend paths twin moves notify watch rest
SM_SRC  := sm-helper/main.c sm-helper/cli.c $(sort $(wildcard $(SM_DIRS:%=sm-helper/%/*.c)))
$(eval $(call program,ibvmig-sm,$(SM_SRC),$(VSWITCH) $(NET_LIBS) -lsqlite3 -libmad -libumad))
$(eval $(call testtool,fabric_setlft,tests/integration/fabric_setlft.c,-libmad -libumad))
$(eval $(call testtool,fabric_sa,tests/integration/fabric_sa.c,-libmad -libumad))
$(eval $(call shared,no_plugin_thread,tests/integration/no_plugin_thread.c,-ldl))
$(eval $(call testtool,fabric_ping,tests/integration/fabric_ping.c,-libmad -libumad))
$(eval $(call testprogram,test_sm_proto,tests/unit/test_sm_proto.c sm-helper/proto/check.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_sm_registry,tests/unit/test_sm_registry.c sm-helper/registry/registry.c sm-helper/registry/claim.c sm-helper/registry/replica.c,$(COMMON_LIBS) -lsqlite3))
$(eval $(call testprogram,test_sm_paths,tests/unit/test_sm_paths.c sm-helper/paths/table.c sm-helper/paths/wire.c,$(COMMON_LIBS)))
$(eval $(call testtool,umad_lfts,tests/bench/umad_lfts.c,$(COMMON) -libumad))
$(eval $(call testtool,sa_flood,tests/bench/sa_flood.c sm-helper/paths/wire.c,$(COMMON) -libumad -lm))
$(eval $(call testprogram,test_fuzz_smproto,tests/fuzz/replay.c tests/fuzz/fuzz_smproto.c sm-helper/proto/check.c sm-helper/paths/wire.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_mad,tests/fuzz/replay.c tests/fuzz/fuzz_mad.c sm-helper/fabric/probe.c sm-helper/fabric/probe_lfts.c sm-helper/fabric/probe_perf.c,$(COMMON_LIBS) -libmad -libumad))
$(eval $(call testprogram,test_sm_outbox,tests/unit/test_sm_outbox.c sm-helper/notify/outbox.c,$(COMMON_LIBS) -lpthread))
$(eval $(call testprogram,test_sm_backend,tests/unit/test_sm_backend.c $(filter-out sm-helper/main.c,$(SM_SRC)),$(VSWITCH) $(NET_LIBS) -lsqlite3 -libmad -libumad))
$(eval $(call testprogram,test_sm_replica,tests/unit/test_sm_replica.c sm-helper/registry/registry.c sm-helper/registry/claim.c sm-helper/registry/replica.c,$(COMMON_LIBS) -lsqlite3))
$(eval $(call testprogram,test_sm_takeover,tests/unit/test_sm_takeover.c sm-helper/plugin/takeover.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_sm_leaks,tests/unit/test_sm_leaks.c sm-helper/watch/leaks.c,$(NET_LIBS)))
$(eval $(call testprogram,test_sm_moves,tests/unit/test_sm_moves.c sm-helper/moves/parked.c sm-helper/moves/ops.c sm-helper/moves/settle.c sm-helper/moves/dynamic.c sm-helper/moves/bind.c sm-helper/moves/batch.c sm-helper/moves/move.c sm-helper/moves/shared.c sm-helper/fabric/lft_reader.c sm-helper/registry/registry.c sm-helper/registry/replica.c,$(VSWITCH) $(COMMON_LIBS) -lsqlite3))
$(eval $(call testprogram,test_sm_parked,tests/unit/test_sm_parked.c sm-helper/moves/parked.c,$(VSWITCH) $(COMMON_LIBS)))
