# ibvmig. `make help` lists the targets; each folder's build.mk says what is built there.
# SAN=1 builds with ASan and UBSan into build-san/, SAN=thread with TSan into build-tsan/; V=1 shows the commands.

CC       ?= cc
BUILD    ?= $(if $(SAN),$(if $(filter thread,$(SAN)),build-tsan,build-san),build)
PREFIX   ?= /usr/local
SYSCONF  ?= /etc
DESTDIR  ?=
VERSION  := 0.1.0

Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

CFLAGS   ?= -O2 -g
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wno-gnu-variable-sized-type-not-at-end \
            $(if $(or $(CI),$(WERROR)),$(if $(SAN),,-Werror))
comma    := ,
SANFLAGS := $(if $(SAN),-fsanitize=$(if $(filter thread,$(SAN)),thread,address$(comma)undefined) -fno-omit-frame-pointer)
ALL_CFLAGS = -std=c17 -D_GNU_SOURCE -DIBVMIG_VERSION='"$(VERSION)"' -fPIC -fvisibility=default \
             -I. $(WARN) $(SANFLAGS) $(CFLAGS)

DIRS := common vswitch sm-helper daemon guest-agent hooks tests
MODS := $(wildcard $(addsuffix /build.mk,$(DIRS)))

ALL      :=
TESTBINS :=
OBJS     :=

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

# A build of CI and of the tests takes all processors, unless -j says how many.
PARALLEL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# $(call program,NAME,SOURCES,LIBRARIES,EXTRA_CFLAGS): build/bin/NAME
define program
ALL += $(BUILD)/bin/$(1)
$(call binary,$(BUILD)/bin/$(1),$(2),$(3),$(4))
endef
# $(call testprogram,NAME,SOURCES,LIBRARIES,EXTRA_CFLAGS): build/tests/NAME, run by `make check`; speaks TAP
define testprogram
TESTBINS += $(BUILD)/tests/$(1)
$(call binary,$(BUILD)/tests/$(1),$(2),$(3) -lcmocka,$(4))
endef
# $(call testtool,NAME,SOURCES,LIBRARIES,EXTRA_CFLAGS): build/tests/NAME, a helper that tests call
define testtool
ALL += $(BUILD)/tests/$(1)
$(call binary,$(BUILD)/tests/$(1),$(2),$(3),$(4))
endef
define binary
OBJS += $(call obj,$(2))
$(call obj,$(filter-out common/%,$(2))): EXTRA = $(4)
$(1): $(call obj,$(2)) $(filter %.a,$(3))
	$$(call say,LD,$$@) mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $$(LDFLAGS) -o $$@ $(call obj,$(2)) $(3) $$(LDLIBS)
endef
# $(call archive,NAME,SOURCES,EXTRA_CFLAGS): build/lib/NAME.a
define archive
OBJS += $(call obj,$(2))
$(call obj,$(2)): EXTRA = $(3)
$(BUILD)/lib/$(1).a: $(call obj,$(2))
	$$(call say,AR,$$@) mkdir -p $$(@D) && rm -f $$@ && ar rcsT $$@ $$^
endef
# $(call shared,NAME,SOURCES,LIBRARIES,EXTRA_CFLAGS,LDFLAGS): build/lib/NAME.so
define shared
ALL += $(BUILD)/lib/$(1).so
OBJS += $(call obj,$(2))
$(call obj,$(filter-out common/%,$(2))): EXTRA = $(4)
$(BUILD)/lib/$(1).so: $(call obj,$(2)) $(filter %.a,$(3)) $(filter %.map,$(subst $(comma), ,$(5)))
	$$(call say,LD,$$@) mkdir -p $$(@D) && $$(CC) $$(ALL_CFLAGS) $$(LDFLAGS) -shared $(5) -o $$@ $(call obj,$(2)) $(3) $$(LDLIBS)
endef

.PHONY: all help check demo soak bench fuzz lint install clean deps
all: real-all ## build everything into build/

include $(MODS)

real-all: $(ALL)

# Threads of simulated hosts are played (tests/sim/clock.c): what plays them has one.
ifeq ($(SAN),thread)
$(BUILD)/obj/tests/sim/%.o: SANFLAGS := -DSIM_TSAN
endif

$(BUILD)/obj/%.o: %.c
	$(call say,CC,$<) mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(EXTRA) -MMD -MP -c -o $@ $<

-include $(sort $(OBJS:.o=.d))

# The help is made of the rules: "target: ... ## text", and "## more" in the lines below one.
help:
	@awk -F ' *## *' '/^[a-z-]+:.* ## / { sub(/:.*/, "", $$1); printf "make %-25s %s\n", $$1, $$2 } \
		/^## / { printf "%-30s %s\n", "", $$2 }' Makefile $(filter %.mk,$(MAKEFILE_LIST))
	@echo 'SAN=1 builds with ASan and UBSan into build-san/, SAN=thread with TSan into build-tsan/; V=1 shows the commands'

deps:
	$(Q)tests/lab/deps
	$(Q)tests/lab/infiniband

demo: deps ## install what is needed, migrate a VM with live RDMA traffic, write build/demo/report.json
## BREAK=no-swap|no-marker|no-dirtying|cache-off|forced-sweep|no-pkey|no-lid breaks one thing on purpose
## LINK=roce gives the guests RoCE in place of InfiniBand
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/demo/run $(if $(BREAK),--break $(BREAK)) $(if $(LINK),--link $(LINK))

check: deps ## install what is needed and run all tests (ends with: N passed, N failed, N skipped)
## ONLY="name..." runs only the test programs whose name contains one of the words
	$(Q)$(MAKE) --no-print-directory $(PARALLEL) all testbins $(if $(filter yes,$(CHECK_QEMU)),qemu)
	$(Q)tests/run-all $(ONLY)

# Tests of whole daemons on simulated hosts; not sim_endless, which counts a heap that sanitizers replace.
SIMULATED := $(addprefix sim_,cancel cold converge drain faults hold lifecycle lost many operator strategies told twice vfs)

# verify_asan_link_order: the shim is preloaded, so it comes before the library of the sanitizer
check-san: deps ## the unit tests, the daemons and the races, built with ASan and UBSan
	$(Q)$(MAKE) --no-print-directory SAN=1 all testbins
	$(Q)BUILD=build-san ASAN_OPTIONS=verify_asan_link_order=0 UBSAN_OPTIONS=halt_on_error=1 \
		tests/run-all $(or $(ONLY),build-san/tests/test_ guest/race daemon/pair cli_qps $(SIMULATED))
.PHONY: check-san

check-tsan: deps ## the unit tests of common/ and daemon/, real daemons under load, and the simulated hosts, built with TSan; the fault matrix takes half an hour of CPU time
	$(Q)$(MAKE) --no-print-directory SAN=thread tsan-parts
	$(Q)BUILD=build-tsan TSAN_OPTIONS=halt_on_error=1 DEADLINE_TIMES=8 tests/run-all \
		$(or $(ONLY),build-tsan/tests/test_common build-tsan/tests/test_daemon daemon/load daemon/pair daemon/tls \
			$(SIMULATED))
tsan-parts: $(filter $(BUILD)/bin/% $(BUILD)/tests/test_common_% $(BUILD)/tests/test_daemon_% \
	$(addprefix $(BUILD)/tests/,$(SIMULATED) many_rest),$(ALL) $(TESTBINS))
.PHONY: check-tsan tsan-parts

qemu: ## QEMU with hooks/qemu/x-late-detach.patch, from the source package of the lab, in build/qemu
	$(Q)tests/lab/deps qemu
	$(Q)hooks/qemu/build build/cache/qemu-source build/cache/qemu-tools $(BUILD)/qemu

check-qemu: qemu ## late detach on it; `make check` does it too once it is built, .ci/run builds it
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/run-all tests/qemu
.PHONY: qemu check-qemu

check-openstack-unit: ## the drivers of Nova and Neutron on the fixtures of those installed (.ci/run has it in make check), then check-openstack-upstream
	$(Q)tests/lab/deps nova
	$(Q)BUILD=$(BUILD) openstack/run-tests $(ONLY)
	$(Q)[ -n "$(ONLY)" ] || BUILD=$(BUILD) openstack/run-tests --upstream

check-openstack-upstream: ## functional and unit tests of Nova itself, on our driver
	$(Q)tests/lab/deps nova
	$(Q)BUILD=$(BUILD) openstack/run-tests --upstream $(ONLY)
.PHONY: check-openstack-unit check-openstack-upstream

check-openstack: ## a small real OpenStack on the lab migrates a server there and back, in build/openstack/report.json; .ci/run has it in make check
	$(Q)tests/lab/deps nova-full
	$(Q)$(MAKE) --no-print-directory all
	$(Q)openstack/check/interrupted
	$(Q)openstack/check/run

check-openstack-neutron: ## the same with neutron-server in place of its stand-in, in build/openstack/report-neutron.json
	$(Q)tests/lab/deps neutron
	$(Q)$(MAKE) --no-print-directory all
	$(Q)openstack/check/run --neutron
.PHONY: check-openstack check-openstack-neutron

# check runs it, too, where the PCI bus has a card
check-hw: ## the VF provider on real ConnectX cards; IBVMIG_HW_VF=NAME of a VF that no VM has
	$(Q)$(MAKE) --no-print-directory $(BUILD)/tests/hw_provider
	$(Q)$(BUILD)/tests/hw_provider; s=$$?; [ $$s = 77 ] || exit $$s
.PHONY: check-hw

testbins: $(TESTBINS)
.PHONY: real-all testbins

soak: deps ## N=20: that many migrations in a row, report in build/soak/report.json
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/demo/soak $(or $(N),20)

bench-apps: ## unmodified applications, each migrated three times, in build/bench/apps.json
## ONLY="word..." runs the rows whose name contains one of the words
	$(Q)tests/lab/deps bench
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/bench/apps $(ONLY)

bench-infiniband: ## services, addresses and partitions on InfiniBand, and programs without options, each migrated three times, in build/bench/infiniband.json
## ONLY="word..." runs the groups ("dynamic, by LID") and rows whose name contains one of the words
	$(Q)tests/lab/deps bench
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/lab/guest/mkimage-bench
	$(Q)tests/bench/infiniband $(ONLY)
	$(Q)tests/bench/infiniband_programs $(ONLY)

# Benches that need what is built and no more: tests/bench/NAME, or what BENCH_NAME says.
BENCHES          := checked flags lab-faults pages rxe paths reroutes fabric moves partitions move-time cut infiniband-report
BENCH_checked     = checked $(or $(N),200)
BENCH_cut         = ../e2e/16-infiniband-paths
BENCH_reroutes    = reroutes $(CUTS)
BENCH_flags       = flags $(ONLY)
BENCH_lab-faults  = lab_faults $(ONLY)
BENCH_rxe         = rxe_retries $(or $(N),10)
BENCH_fabric      = fabric $(NETS)
BENCH_moves       = moves -n $(or $(N),1000) $(NETS)
BENCH_partitions  = partitions -n $(or $(N),1000) $(NETS)
BENCH_move-time   = move_time $(NETS)
BENCH_infiniband-report = infiniband_report
bench-checked: ## N=200: checked traffic over that many migrations, in build/bench/checked.json
bench-reroutes: ## a link cut on meshes under lash, told in all ways, beside the paper's equations, in build/bench/infiniband.json
## CUTS="8x8:s27:3..." chooses the meshes
bench-flags: ## what users add to virsh migrate, and native migrations, on the lab with checked traffic
bench-lab-faults: ## a sample of them on the lab, under checked traffic, in build/bench/lab-faults.json; ONLY="word..." chooses cells (lab-faults-part.json)
bench-pages: ## what an HCA writes behind the dirty log during a migration, in build/bench/pages.json
bench-rxe: ## N=10: what rdma_rxe makes of requests that it sends again, without a migration, in build/bench/rxe.json
bench-paths: ## path records, from the SA and from the cache: lookups/s and a flood, in build/bench/paths.json
bench-fabric: ## moves and batches on OpenSM over ibsim against its heavy sweep, in build/bench/fabric.json
## NETS="net..." chooses the nets (ibvmig-vswitch --help)
bench-moves: ## N=1000 random moves on each of ten nets, with sweeps, flaps and restarts; all pairs walked after each
bench-partitions: ## N=1000 random moves with partitions on each of five nets, in both address modes, in build/bench/infiniband.json
bench-move-time: ## BEFORE=BUILD: a move at 11,664 hosts beside one of that older build, and batches in waves, in build/bench/infiniband.json
bench-cut: ## links of a mesh under lash that are cut under checked traffic, in build/bench/infiniband.json
bench-infiniband-report: ## build/bench/infiniband.json of its parts, and each line of it that is met, missed or missing
$(BENCHES:%=bench-%): bench-%: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/bench/$(or $(BENCH_$*),$*)
.PHONY: bench-apps bench-infiniband $(BENCHES:%=bench-%)

bench-daemon: deps ## 500 requests/s beside 64 incoming preparations and 64 complete simulated migrations, 10,000 more preparations, and idling, in build/bench/daemon.json
	$(Q)$(MAKE) --no-print-directory all $(BUILD)/tests/many_rest
	$(Q)tests/bench/daemon
.PHONY: bench-daemon

bench-flood: $(BUILD)/tests/flood_host ## a guest that floods its channel beside another VM's migrations, in build/bench/hostile/flood.json
	$(Q)tests/bench/flood
.PHONY: bench-flood

bench-vswitch: $(BUILD)/tests/vswitch_bench ## plans, memory, the cost table of the vSwitch paper, in build/bench/vswitch.json
	$(Q)mkdir -p $(BUILD)/bench && $< >$(BUILD)/bench/vswitch.json.new && mv $(BUILD)/bench/vswitch.json.new $(BUILD)/bench/vswitch.json
	@echo '  report  $(BUILD)/bench/vswitch.json'
.PHONY: bench-vswitch

bench-failover: all ## two OpenSMs, the master killed at every SMP of a batch, a handover; STEPS=few for a sample
	$(Q)FAILOVER_STEPS=$(or $(STEPS),all) tests/bench/failover
.PHONY: bench-failover

bench: deps ## five measured migrations, report in build/bench/
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/demo/soak 5 $(BUILD)/bench

fuzz: deps ## run each fuzz target for FUZZ_SECONDS (default 30)
	$(Q)tests/fuzz/run $(or $(FUZZ_SECONDS),30)

lint: all ## clang-format, cppcheck, and how comments and documents read (tests/words)
	$(Q)clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')
	$(Q)cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -D_GNU_SOURCE -I. \
		--enable=warning,performance,portability --suppress=missingIncludeSystem \
		$$(git ls-files '*.c')
	$(Q)BUILD=$(BUILD) tests/layers
	$(Q)tests/words --check
	$(Q)docs/measurements/generate --check

measurements: ## docs/measurements.md and its plots, from the snapshots in docs/measurements/
	$(Q)docs/measurements/generate

measurements-house: ## the sizes of this tree into docs/measurements/house.json, then make measurements
	$(Q)tests/lab/deps universal-ctags
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/bench/house
	$(Q)docs/measurements/generate

snapshot: ## NAME=outage: the report of the last such bench into docs/measurements/NAME.json, then make measurements
	$(Q)docs/measurements/take $(NAME)
	$(Q)docs/measurements/generate
.PHONY: measurements measurements-house snapshot

# What hooks/*.conf and docs/man/*.conf.5 say of settings comes from the programs' tables.
settings: $(BUILD)/bin/ibvmigd $(BUILD)/bin/ibvmig-sm ## write hooks/*.conf and the list of settings in docs/man/*.conf.5 from the tables in the programs
	$(Q)hooks/settings '$(BUILD)'
.PHONY: settings

install: all ## DESTDIR, PREFIX and SYSCONF are respected
	$(Q)hooks/install '$(BUILD)' '$(DESTDIR)' '$(PREFIX)' '$(SYSCONF)'

clean: ## remove build/
	rm -rf build build-san build-tsan
