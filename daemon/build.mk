# The host daemon ibvmigd and its command line ibvmig.
DAEMON_DIRS := . base store libvirt vf vm migrate fleet report
DAEMON_SRC  := $(filter-out daemon/main.c,$(patsubst daemon/./%,daemon/%,$(sort $(wildcard $(DAEMON_DIRS:%=daemon/%/*.c)))))
DAEMON_LIB   := $(BUILD)/lib/libdaemon.a
DAEMON_LIBS  := $(DAEMON_LIB) $(NET_LIBS) -lsqlite3 -lxml2 -lvirt-qemu -lvirt -lnl-3

$(eval $(call archive,libdaemon,$(DAEMON_SRC),-I/usr/include/libxml2 -I/usr/include/libnl3))
$(eval $(call program,ibvmigd,daemon/main.c,$(DAEMON_LIBS),-I/usr/include/libxml2))
$(eval $(call program,ibvmig-lease,daemon/lease/main.c,$(DAEMON_LIBS)))
$(eval $(call program,ibvmig,$(sort $(wildcard daemon/cli/*.c)),$(NET_LIBS) -lm))

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
$(eval $(call testprogram,test_daemon_qps,tests/unit/test_daemon_qps.c daemon/vm/qps.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_relay,tests/unit/test_daemon_relay.c daemon/vm/relay.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_repath,tests/unit/test_daemon_repath.c daemon/vm/repath.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_mover,tests/unit/test_daemon_mover.c daemon/fleet/jobs.c daemon/base/job.c daemon/base/strategy.c,$(NET_LIBS)))
$(eval $(call testprogram,test_daemon_qmp,tests/unit/test_daemon_qmp.c daemon/libvirt/qmp.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_qmp,tests/fuzz/replay.c tests/fuzz/fuzz_qmp.c daemon/libvirt/qmp.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_provider,tests/fuzz/replay.c tests/fuzz/fuzz_provider.c daemon/vf/table.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_saved,tests/fuzz/replay.c tests/fuzz/fuzz_saved.c,$(DAEMON_LIBS),-I/usr/include/libxml2))
$(eval $(call testprogram,test_fuzz_guest,tests/fuzz/replay.c tests/fuzz/fuzz_guest.c $(addprefix daemon/vm/,agent.c channel.c relay.c qps.c),$(NET_LIBS)))
$(eval $(call testprogram,test_fuzz_domain,tests/fuzz/replay.c tests/fuzz/fuzz_domain.c,$(DAEMON_LIBS)))
$(BUILD)/obj/daemon/report/openapi.o: docs/openapi.json
$(eval $(call testprogram,test_daemon_rest,tests/unit/test_daemon_rest.c tests/fake/documented.c,$(DAEMON_LIBS)))
