# A fuzz target tests/fuzz/fuzz_NAME.c replays its committed corpus in `make check`, as the program
# build/tests/test_fuzz_NAME. FUZZ_SRC_NAME: the product's files that it links; FUZZ_LIBS_NAME.
FUZZ_SRC_smproto  := sm-helper/proto/check.c sm-helper/paths/wire.c
FUZZ_SRC_policy   := sm-helper/plugin/partitions/policy.c
FUZZ_SRC_mad      := $(addprefix sm-helper/fabric/,probe.c probe_lfts.c probe_perf.c)
FUZZ_LIBS_mad     := $(COMMON_LIBS) -libmad -libumad
FUZZ_SRC_gsi      := $(addprefix tests/lab/port/,wire.c bridge.c port.c)
FUZZ_LIBS_gsi     := $(COMMON_LIBS) -libmad -libumad
FUZZ_LIBS_topo    := $(VSWITCH) $(COMMON_LIBS)
FUZZ_LIBS_lfts    := $(VSWITCH) $(COMMON_LIBS)
FUZZ_LIBS_http    := $(NET_LIBS)
FUZZ_SRC_qmp      := daemon/libvirt/qmp.c
FUZZ_SRC_provider := daemon/vf/table.c
FUZZ_LIBS_saved   := $(DAEMON_LIBS)
FUZZ_FLAGS_saved  := -I/usr/include/libxml2
FUZZ_SRC_guest    := $(addprefix daemon/vm/,agent.c answers.c channel.c relay.c relay_host.c relay_route.c relay_pkeys.c qps.c) daemon/base/partition.c
FUZZ_LIBS_guest   := $(NET_LIBS)
FUZZ_LIBS_domain  := $(DAEMON_LIBS)
FUZZ_SRC_peer     := $(SRC_guest_peer)
FUZZ_LIBS_peer    := $(COMMON) -lpthread
FUZZ_SRC_shim     := $(addprefix guest-agent/agent/,relay.c sender.c query.c suspend.c will.c)
FUZZ_LIBS_shim    := $(NET) $(COMMON) -ljson-c -lsystemd -lpthread
FUZZ_SRC_rest     := $(SIM_SRC)
FUZZ_LIBS_rest    := $(DAEMON_LIBS) $(SIM_WRAP)
define fuzz_replay
$(call testprogram,test_fuzz_$(1),tests/fuzz/replay.c tests/fuzz/fuzz_$(1).c $(FUZZ_SRC_$(1)),$(or $(FUZZ_LIBS_$(1)),$(COMMON_LIBS)),$(FUZZ_FLAGS_$(1)))
endef
$(foreach n,$(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c)),$(eval $(call fuzz_replay,$(n))))
# For tests/fuzz/run, which brings main().
$(eval $(call binary,$(BUILD)/tests/fuzz_rest,tests/fuzz/fuzz_rest.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP)))
