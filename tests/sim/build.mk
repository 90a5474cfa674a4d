# Whole daemons on simulated hosts: ibvmigd as it is shipped, above seams that are played. Each
# tests/sim/cases/NAME.c is the program build/tests/sim_NAME, and `make check` runs it.
SIM_SRC  := $(sort $(wildcard tests/sim/*.c))
SIM_WRAP := $(foreach f,clock_gettime poll socket close fdatasync,-Wl$(comma)--wrap=$(f))
SIM_CASES := $(filter-out faults_cold,$(patsubst tests/sim/cases/%.c,%,$(sort $(wildcard tests/sim/cases/*.c))))
SIM_CASE_faults := tests/sim/cases/faults_cold.c
$(foreach n,$(SIM_CASES),$(eval $(call testtool,sim_$(n),tests/sim/cases/$(n).c $(SIM_CASE_$(n)) $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2)))
$(eval $(call testtool,many_rest,tests/bench/many_rest.c $(SIM_SRC),$(DAEMON_LIBS) $(SIM_WRAP),-I/usr/include/libxml2))

.PHONY: bench-faults
bench-faults: $(BUILD)/tests/sim_faults ## each fault in each state of a migration at three moments, on simulated hosts, in build/bench/faults.json
	$(Q)BUILD=$(BUILD) $< all
