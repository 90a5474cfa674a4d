# The guest side. libibvmig.so is preloaded into programs we do not know: libc only, no JSON.
AGENT_SRC := $(sort $(wildcard guest-agent/agent/*.c))
$(eval $(call program,ibvmig-agent,$(AGENT_SRC),$(BUILD)/lib/libnet.a $(COMMON) -ljson-c -lsystemd -lnl-3 -lpthread,-I/usr/include/libnl3))

SHIM_DIRS := core port peer verbs job repath ud cm .
SHIM_SRC  := $(filter-out guest-agent/shim/core/dl_stub.c,$(patsubst guest-agent/shim/./%,guest-agent/shim/%,$(sort $(wildcard $(SHIM_DIRS:%=guest-agent/shim/%/*.c)))))
$(eval $(call shared,libibvmig,$(SHIM_SRC),$(COMMON) -lpthread -ldl,,-Wl$(comma)-z$(comma)defs -Wl$(comma)--version-script$(comma)guest-agent/shim.map))
# What programs get that load libibverbs by dlopen(): no symbols, only what it needs, in this order.
$(eval $(call shared,libibvmig-dl,guest-agent/shim/core/dl_stub.c,-Wl$(comma)--no-as-needed -L$(BUILD)/lib -libvmig -libverbs,,-Wl$(comma)-rpath$(comma)'$$$$ORIGIN'))
$(BUILD)/lib/libibvmig-dl.so: | $(BUILD)/lib/libibvmig.so
$(eval $(call program,ibvmig-run,$(sort $(wildcard guest-agent/run/*.c)),$(COMMON)))

$(eval $(call testtool,regions_native,tests/bench/regions_native.c guest-agent/shim/job/region.c guest-agent/shim/core/maps.c guest-agent/shim/core/batch.c,$(COMMON) -lpthread))
$(eval $(call testtool,pages_native,tests/bench/pages_native.c guest-agent/shim/verbs/dirty.c guest-agent/shim/core/batch.c,$(COMMON) -lpthread))
