# The host daemon ibvmigd and its command line ibvmig.
DAEMON_PARTS := heap settings job job_vfs defer cold cold_restore domain_saved domain_xml provider_exec provider_mlx5 provider_mlx5_conf hca sysfs vf_netlink vf_guid vfio vfio_migration \
		memlock grant journal durable domain domain_device vf events agent qmp virt events_libvirt sm locate \
		relay repath beat qps strategy vm vm_discover vm_work vm_channel hold migrate migrate_record migrate_vfs migrate_choice migrate_src migrate_src_prepare migrate_src_hold migrate_src_undo migrate_lost migrate_orphan \
		migrate_dst migrate_dst_calls migrate_peer peer peer_watch migrate_events migrate_look mover fence preview capacity plan drain drain_plan drain_rest drain_again drained balance balance_get lease lease_keep clocks timeline timeline_get \
		doctor doctor_host doctor_fabric metrics openapi rest daemon
DAEMON_LIB   := $(BUILD)/lib/libdaemon.a
DAEMON_LIBS  := $(DAEMON_LIB) $(NET_LIBS) -lsqlite3 -lxml2 -lvirt-qemu -lvirt -lnl-3

$(eval $(call archive,libdaemon,$(DAEMON_PARTS:%=daemon/%.c),-I/usr/include/libxml2 -I/usr/include/libnl3))
$(eval $(call program,ibvmigd,daemon/main.c,$(DAEMON_LIBS),-I/usr/include/libxml2))
$(eval $(call program,ibvmig-lease,daemon/lease_main.c,$(DAEMON_LIBS)))
$(eval $(call program,ibvmig,daemon/cli.c daemon/cli_show.c daemon/cli_migrate.c daemon/cli_save.c \
	daemon/cli_drain.c daemon/cli_timeline.c daemon/cli_svg.c daemon/cli_doctor.c,$(NET_LIBS) -lm))

define daemon_test
$(call testprogram,test_daemon_$(1),tests/unit/test_daemon_$(1).c,$(DAEMON_LIBS))
endef
$(foreach t,domain domain_device domain_saved grant hold strategy agent provider_exec journal migrate timeline doctor plan balance lease job_vfs settings events events_libvirt,$(eval $(call daemon_test,$(t))))
$(eval $(call testprogram,test_daemon_durable,tests/unit/test_daemon_durable.c,$(DAEMON_LIBS) -Wl$(comma)--wrap=fdatasync))
$(eval $(call testprogram,test_daemon_check,tests/unit/test_daemon_check.c,$(DAEMON_LIBS) $(foreach f,http_call locate_guid,-Wl$(comma)--wrap=$(f))))
$(foreach t,probe drain,$(eval $(call testprogram,test_daemon_$(t),tests/unit/test_daemon_$(t).c,$(DAEMON_LIBS) -Wl$(comma)--wrap=job_start)))
$(eval $(call testprogram,test_daemon_vf,tests/unit/test_daemon_vf.c,$(DAEMON_LIBS) -Wl$(comma)--wrap=calloc))
$(eval $(call testtool,hw_provider,tests/hw/provider.c tests/hw/checks.c,$(DAEMON_LIBS)))
FAKE_HCA := tests/fake/hca.c tests/fake/hca_netlink.c
$(foreach t,hca provider_mlx5 vfio_migration doctor_vfs,$(eval $(call testprogram,test_daemon_$(t),tests/unit/test_daemon_$(t).c $(FAKE_HCA),\
	$(DAEMON_LIBS) -lpthread,-I/usr/include/libnl3)))
$(eval $(call testprogram,test_daemon_hw,tests/unit/test_daemon_hw.c tests/hw/checks.c $(FAKE_HCA),$(DAEMON_LIBS) -lpthread,-I/usr/include/libnl3))
$(eval $(call testprogram,test_daemon_qps,tests/unit/test_daemon_qps.c daemon/qps.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_relay,tests/unit/test_daemon_relay.c daemon/relay.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_repath,tests/unit/test_daemon_repath.c daemon/repath.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_mover,tests/unit/test_daemon_mover.c daemon/mover.c daemon/job.c daemon/strategy.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_qmp,tests/unit/test_daemon_qmp.c daemon/qmp.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_qmp,tests/fuzz/replay.c tests/fuzz/fuzz_qmp.c daemon/qmp.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_provider,tests/fuzz/replay.c tests/fuzz/fuzz_provider.c daemon/vf.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_saved,tests/fuzz/replay.c tests/fuzz/fuzz_saved.c,$(DAEMON_LIBS),-I/usr/include/libxml2))
$(eval $(call testprogram,test_fuzz_guest,tests/fuzz/replay.c tests/fuzz/fuzz_guest.c $(addprefix daemon/,agent.c vm_channel.c relay.c qps.c),$(NET_LIBS)))
$(eval $(call testprogram,test_fuzz_domain,tests/fuzz/replay.c tests/fuzz/fuzz_domain.c,$(DAEMON_LIBS)))
$(BUILD)/obj/daemon/openapi.o: docs/openapi.json
$(eval $(call testprogram,test_daemon_rest,tests/unit/test_daemon_rest.c tests/fake/documented.c,$(DAEMON_LIBS)))
