# A libibverbs that is played, below the shim as it is shipped.
FAKE := $(BUILD)/tests/fake/libibverbs.so.1
FAKE_SRC := tests/fake/verbs.c tests/fake/verbs_wire.c tests/fake/verbs_xrc.c
ALL += $(FAKE)
OBJS += $(call obj,$(FAKE_SRC))
$(FAKE): $(call obj,$(FAKE_SRC)) tests/fake/verbs.map
	$(call say,LD,$@) mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script,tests/fake/verbs.map -o $@ $(call obj,$(FAKE_SRC)) -lpthread

RIG := tests/fake/rig.c tests/fake/rig_exec.c tests/fake/agent.c
$(eval $(call testtool,shim_ops,tests/bench/shim_ops.c $(RIG),-libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_cost,tests/unit/test_guest_cost.c $(RIG),-libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_fork,tests/unit/test_guest_fork.c $(RIG),-libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_events,tests/unit/test_guest_events.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_lost,tests/unit/test_guest_lost.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_again,tests/unit/test_guest_again.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_reset,tests/unit/test_guest_reset.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_gone,tests/unit/test_guest_gone.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_lids,tests/unit/test_guest_lids.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_xrc,tests/unit/test_guest_xrc.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_dlopen,tests/unit/test_guest_dlopen.c tests/fake/rig_exec.c tests/fake/agent.c,-lpthread -ldl))
$(eval $(call testprogram,test_guest_mlx5,tests/unit/test_guest_mlx5.c tests/fake/rig_exec.c tests/fake/agent.c,-lmlx5 -lpthread -ldl))
$(BUILD)/tests/test_guest_fork $(BUILD)/tests/test_guest_events $(BUILD)/tests/test_guest_lost $(BUILD)/tests/test_guest_gone $(BUILD)/tests/test_guest_again $(BUILD)/tests/test_guest_reset $(BUILD)/tests/test_guest_lids $(BUILD)/tests/test_guest_xrc $(BUILD)/tests/test_guest_mlx5 $(BUILD)/tests/test_guest_dlopen: | $(FAKE) $(BUILD)/lib/libibvmig.so $(BUILD)/lib/libibvmig-dl.so
$(BUILD)/tests/shim_ops $(BUILD)/tests/test_guest_cost: | $(FAKE) $(BUILD)/lib/libibvmig.so

.PHONY: bench-shim
bench-shim:
	$(Q)tests/lab/deps valgrind
	$(Q)$(MAKE) --no-print-directory all testbins
	$(Q)tests/bench/shim
	$(Q)tests/bench/shim_guest

# The shim's own code with a sanitizer, on the played libibverbs: build/tests/guest_race.NAME
# $(call sanitized,NAME,FLAGS)
RACE_SRC := tests/unit/guest_race.c tests/fake/agent.c $(SHIM_SRC) common/util.c
sanitized_obj = $(patsubst %.c,$(BUILD)/obj-$(1)/%.o,$(2))
define sanitized
$(BUILD)/obj-$(1)/%.o: %.c
	$$(call say,CC,$$@) mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $(2) -O1 -MMD -MP -c -o $$@ $$<
$(BUILD)/tests/fake-$(1)/libibverbs.so.1: $(call sanitized_obj,$(1),$(FAKE_SRC)) tests/fake/verbs.map
	$$(call say,LD,$$@) mkdir -p $$(@D) && $$(CC) $(2) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script,tests/fake/verbs.map -o $$@ $(call sanitized_obj,$(1),$(FAKE_SRC)) -lpthread
$(BUILD)/tests/guest_race.$(1): $(call sanitized_obj,$(1),$(RACE_SRC)) $(BUILD)/tests/fake-$(1)/libibverbs.so.1
	$$(call say,LD,$$@) $$(CC) $(2) -o $$@ $(call sanitized_obj,$(1),$(RACE_SRC)) \
		-Wl,-rpath,'$$$$ORIGIN/fake-$(1)' $(BUILD)/tests/fake-$(1)/libibverbs.so.1 -lpthread -ldl
-include $(patsubst %.o,%.d,$(call sanitized_obj,$(1),$(RACE_SRC) $(FAKE_SRC)))
endef
$(eval $(call sanitized,tsan,-fsanitize=thread))
$(eval $(call sanitized,asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined))
# With ASan in `make check`; a skip where the compiler has no runtime for it.
ifeq ($(shell echo 'int main(void){return 0;}' | $(CC) -fsanitize=address -x c -o /dev/null - 2>&1),)
TESTBINS += $(BUILD)/tests/guest_race.asan
endif

# What depends on chance needs many runs: RUNS=20
.PHONY: bench-race
bench-race: $(BUILD)/tests/guest_race.tsan $(BUILD)/tests/guest_race.asan
	$(Q)tests/integration/guest_race $(or $(RUNS),20) tsan asan

$(eval $(call testtool,qps_played,tests/bench/qps_played.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(BUILD)/tests/qps_played: | $(FAKE) $(BUILD)/lib/libibvmig.so

.PHONY: bench-qps
bench-qps:
	$(Q)tests/lab/deps
	$(Q)$(MAKE) --no-print-directory all testbins
	$(Q)tests/bench/qps

# The fault matrix on simulated hosts: the daemon as it is shipped, above played seams.
SIM_SRC := $(addprefix tests/fake/sim,.c _net.c _fabric.c _libvirt.c _virt.c _qemu.c _save.c _cold.c _guest.c _world.c _right.c _lost.c _scene.c _use.c _faults.c _cells.c _operator.c) tests/fake/documented.c
SIM_WRAP := $(foreach f,clock_gettime poll socket close fdatasync,-Wl$(comma)--wrap=$(f))
$(eval $(call testtool,daemon_faults,tests/integration/daemon_faults.c tests/integration/faults_cold.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_strategies,tests/integration/daemon_strategies.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_operator,tests/integration/daemon_operator.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_told,tests/integration/daemon_told.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_twice,tests/integration/daemon_twice.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_lifecycle,tests/integration/daemon_lifecycle.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_vfs,tests/integration/daemon_vfs.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_lost,tests/integration/daemon_lost.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_cancel,tests/integration/daemon_cancel.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_converge,tests/integration/daemon_converge.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_hold,tests/integration/daemon_hold.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_drain,tests/integration/daemon_drain.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_cold,tests/integration/daemon_cold.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_endless,tests/integration/daemon_endless.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,daemon_many,tests/integration/daemon_many.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))
$(eval $(call testtool,many_rest,tests/bench/many_rest.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))

$(eval $(call testprogram,test_fuzz_rest,tests/fuzz/replay.c tests/fuzz/fuzz_rest.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP)))
# For tests/fuzz/run, which brings main().
$(eval $(call binary,$(BUILD)/tests/fuzz_rest,tests/fuzz/fuzz_rest.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP)))

# All moments of each state; make check takes one.
.PHONY: bench-faults
bench-faults: $(BUILD)/tests/daemon_faults
	$(Q)BUILD=$(BUILD) $< all
