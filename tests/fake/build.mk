# A libibverbs that is played, below the shim as it is shipped.
FAKE := $(BUILD)/tests/fake/libibverbs.so.1
FAKE_SRC := $(addprefix tests/fake/verbs/,verbs.c verbs_wire.c verbs_xrc.c)
ALL += $(FAKE)
OBJS += $(call obj,$(FAKE_SRC))
$(FAKE): $(call obj,$(FAKE_SRC)) tests/fake/verbs/verbs.map
	$(call say,LD,$@) mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script,tests/fake/verbs/verbs.map -o $@ $(call obj,$(FAKE_SRC)) -lpthread

RIG := tests/fake/verbs/rig.c tests/fake/verbs/rig_exec.c tests/fake/verbs/agent.c
$(eval $(call testtool,shim_ops,tests/bench/shim_ops.c $(RIG),-libverbs -lpthread -ldl))
$(BUILD)/tests/shim_ops: | $(FAKE) $(BUILD)/lib/libibvmig.so

.PHONY: bench-shim
bench-shim: ## the cost of the shim on the data path, in instructions, in build/bench/shim.json
	$(Q)tests/lab/deps valgrind
	$(Q)$(MAKE) --no-print-directory all testbins
	$(Q)tests/bench/shim
	$(Q)tests/bench/shim_guest

.PHONY: bench-senders
bench-senders: $(BUILD)/tests/test_guest_senders ## who may say what to whom, by forged senders, in build/bench/hostile/senders.json
	$(Q)mkdir -p $(BUILD)/bench/hostile
	$(Q)$< $(BUILD)/bench/hostile/senders.json

# The shim's own code with a sanitizer, on the played libibverbs: build/tests/guest_race.NAME
# $(call sanitized,NAME,FLAGS)
RACE_SRC := tests/unit/guest-agent/race.c tests/fake/verbs/agent.c $(SHIM_SRC) common/util.c
sanitized_obj = $(patsubst %.c,$(BUILD)/obj-$(1)/%.o,$(2))
define sanitized
$(BUILD)/obj-$(1)/%.o: %.c
	$$(call say,CC,$$@) mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $(2) -O1 -MMD -MP -c -o $$@ $$<
$(BUILD)/tests/fake-$(1)/libibverbs.so.1: $(call sanitized_obj,$(1),$(FAKE_SRC)) tests/fake/verbs/verbs.map
	$$(call say,LD,$$@) mkdir -p $$(@D) && $$(CC) $(2) -shared -Wl,-soname,libibverbs.so.1 \
		-Wl,--version-script,tests/fake/verbs/verbs.map -o $$@ $(call sanitized_obj,$(1),$(FAKE_SRC)) -lpthread
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

# A race depends on chance, and needs many runs: RUNS=20
.PHONY: bench-race
bench-race: $(BUILD)/tests/guest_race.tsan $(BUILD)/tests/guest_race.asan ## RUNS=20: posts and polls from many threads during migrations, under TSan and ASan
	$(Q)tests/integration/guest/race $(or $(RUNS),20) tsan asan

$(eval $(call testtool,qps_played,tests/bench/qps_played.c $(RIG),$(COMMON) -libverbs -lpthread -ldl))
$(BUILD)/tests/qps_played: | $(FAKE) $(BUILD)/lib/libibvmig.so

.PHONY: bench-qps
bench-qps: ## what a suspend and a resume cost by the number of QPs, in build/bench/qps.json, .svg
	$(Q)tests/lab/deps
	$(Q)$(MAKE) --no-print-directory all testbins
	$(Q)tests/bench/qps
