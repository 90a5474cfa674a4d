# A libibverbs that is played, below the shim as it is shipped.
FAKE := $(BUILD)/tests/fake/libibverbs.so.1
FAKE_SRC := tests/fake/verbs.c tests/fake/verbs_wire.c
ALL += $(FAKE)
OBJS += $(call obj,$(FAKE_SRC))
$(FAKE): $(call obj,$(FAKE_SRC)) tests/fake/verbs.map
	$(call say,LD,$@) mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script,tests/fake/verbs.map -o $@ $(call obj,$(FAKE_SRC)) -lpthread

RIG := tests/fake/rig.c tests/fake/rig_exec.c tests/fake/agent.c
$(eval $(call testtool,shim_ops,tests/bench/shim_ops.c $(RIG),-libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_cost,tests/unit/test_guest_cost.c $(RIG),-libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_fork,tests/unit/test_guest_fork.c $(RIG),-libverbs -lpthread -ldl))
$(eval $(call testprogram,test_guest_dlopen,tests/unit/test_guest_dlopen.c tests/fake/rig_exec.c tests/fake/agent.c,-lpthread -ldl))
$(eval $(call testprogram,test_guest_mlx5,tests/unit/test_guest_mlx5.c tests/fake/rig_exec.c tests/fake/agent.c,-lmlx5 -lpthread -ldl))
$(BUILD)/tests/test_guest_fork $(BUILD)/tests/test_guest_mlx5 $(BUILD)/tests/test_guest_dlopen: | $(FAKE) $(BUILD)/lib/libibvmig.so $(BUILD)/lib/libibvmig-dl.so
$(BUILD)/tests/shim_ops $(BUILD)/tests/test_guest_cost: | $(FAKE) $(BUILD)/lib/libibvmig.so

.PHONY: bench-shim
bench-shim:
	$(Q)tests/lab/deps valgrind
	$(Q)$(MAKE) --no-print-directory all testbins
	$(Q)tests/bench/shim
