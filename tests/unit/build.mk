# The unit tests: tests/unit/FOLDER/NAME.c is build/tests/test_PART_NAME by being there, linked with
# the libraries of its part. A test that links files of the product against stubs of its own, or
# wraps functions, says so in a line below. The lines: SRC_PART_NAME, LIBS_PART_NAME (in place of the part's),
# WRAP_PART_NAME (functions for ld's --wrap) or FLAGS_PART_NAME.
UNIT_LIBS_common  := $(NET_LIBS)
UNIT_LIBS_vswitch := $(VSWITCH) $(COMMON_LIBS)
UNIT_LIBS_sm      := $(VSWITCH) $(NET_LIBS) -lsqlite3 -libmad -libumad
UNIT_LIBS_daemon  := $(DAEMON_LIBS)
UNIT_LIBS_guest   := $(COMMON_LIBS) -lpthread
UNIT_LIBS_lab     := $(COMMON_LIBS)

WRAP_common_http := realloc
WRAP_common_work := pthread_create
SRC_common_tls   := tests/fake/certs.c

SM_REGISTRY     := $(addprefix sm-helper/registry/,registry.c owner.c claim.c renew.c replica.c)
SRC_sm_proto    := sm-helper/proto/check.c
SRC_sm_registry := $(SM_REGISTRY)
WRAP_sm_registry := wall_ms sqlite3_open_v2
SRC_sm_replica  := $(SM_REGISTRY)
SRC_sm_paths    := sm-helper/paths/table.c sm-helper/paths/wire.c
SRC_sm_interest := sm-helper/paths/interest.c
SRC_sm_differ   := sm-helper/plugin/distinguisher/differ.c
SRC_sm_look     := sm-helper/plugin/distinguisher/look.c sm-helper/plugin/distinguisher/differ.c
FLAGS_sm_look   := -isystem /usr/include/infiniband
SRC_sm_outbox   := sm-helper/notify/outbox.c
SRC_sm_backend  := $(filter-out sm-helper/main.c,$(SM_SRC))
SRC_sm_reroute  := $(filter-out sm-helper/main.c,$(SM_SRC))
SRC_sm_ufm      := $(filter-out sm-helper/main.c,$(SM_SRC))
SRC_sm_call     := $(filter-out sm-helper/main.c,$(SM_SRC))
WRAP_sm_call    := ops_publish http_reply
SRC_sm_settings := $(filter-out sm-helper/main.c,$(SM_SRC))
SRC_sm_takeover := sm-helper/plugin/master/takeover.c
SRC_sm_guids    := sm-helper/plugin/guids.c
FLAGS_sm_guids  := -isystem /usr/include/infiniband
SRC_sm_gate     := sm-helper/plugin/gate.c
FLAGS_sm_gate   := -isystem /usr/include/infiniband
SRC_sm_fence    := sm-helper/plugin/master/owner.c
FLAGS_sm_fence  := -isystem /usr/include/infiniband
WRAP_sm_fence   := fsync
SRC_sm_policy   := sm-helper/plugin/partitions/policy.c
SRC_sm_members  := sm-helper/plugin/partitions/members.c
FLAGS_sm_members := -isystem /usr/include/infiniband
SRC_sm_pkeys    := sm-helper/plugin/partitions/pkeys.c
FLAGS_sm_pkeys  := -isystem /usr/include/infiniband
SRC_sm_late     := sm-helper/plugin/smps.c sm-helper/plugin/wire.c
FLAGS_sm_late   := -isystem /usr/include/infiniband
LIBS_sm_late     = $(UNIT_LIBS_sm) -losmcomp
SRC_sm_deliver  := sm-helper/plugin/deliver.c
FLAGS_sm_deliver := -isystem /usr/include/infiniband
SRC_sm_partitions := sm-helper/plugin/partitions/partitions.c sm-helper/plugin/partitions/policy.c
FLAGS_sm_partitions := -isystem /usr/include/infiniband
LIBS_sm_partitions = $(UNIT_LIBS_sm) -losmcomp
WRAP_sm_partitions := open fopen
SRC_sm_view     := sm-helper/plugin/view.c
FLAGS_sm_view   := -isystem /usr/include/infiniband
LIBS_sm_view     = $(UNIT_LIBS_sm) -losmcomp
SRC_sm_rates    := sm-helper/fabric/rates.c
SRC_sm_leaks    := sm-helper/watch/leaks.c
SRC_sm_lfts     := sm-helper/plugin/lfts.c
FLAGS_sm_lfts   := -isystem /usr/include/infiniband
SRC_sm_rebuild  := sm-helper/watch/rebuild.c
SRC_sm_hosts    := sm-helper/watch/hosts.c
WRAP_sm_hosts   := http_call
SRC_sm_verify   := sm-helper/watch/verify.c sm-helper/fabric/lft_reader.c sm-helper/fabric/pkeys.c sm-helper/fabric/reach.c
SRC_sm_follow   := sm-helper/watch/members.c
SRC_sm_off      := sm-helper/watch/off.c sm-helper/fabric/reach.c
SRC_sm_moves    := $(addprefix sm-helper/moves/,parked.c parked_moves.c ops.c begin.c own.c settle.c slots.c dynamic.c bind.c batch.c move.c shared.c) \
                   sm-helper/fabric/lft_reader.c sm-helper/fabric/reach.c sm-helper/registry/registry.c sm-helper/registry/renew.c sm-helper/registry/owner.c sm-helper/registry/replica.c
SRC_sm_moves_lost := $(SRC_sm_moves)
SRC_sm_parked   := $(addprefix sm-helper/moves/,parked.c parked_moves.c)

FAKE_HCA := tests/fake/host/hca.c tests/fake/host/hca_netlink.c
WRAP_daemon_durable := fdatasync
WRAP_daemon_check   := http_call locate_guid job_order
WRAP_daemon_probe   := job_order
WRAP_daemon_drain   := job_start
WRAP_daemon_vf      := calloc
WRAP_daemon_record  := http_reply journal_migration
WRAP_daemon_metrics := http_reply_text virt_is_connected
SRC_daemon_hw       := tests/hw/checks.c
$(foreach t,hca provider_mlx5 vfio_migration doctor_vfs hw,$(eval SRC_daemon_$(t) += $(FAKE_HCA))$(eval FLAGS_daemon_$(t) := -I/usr/include/libnl3))
SRC_daemon_qps      := daemon/vm/qps.c daemon/vm/answers.c
LIBS_daemon_qps     := $(NET_LIBS)
SRC_daemon_relay    := $(addprefix daemon/vm/,relay.c relay_host.c relay_route.c relay_pkeys.c) daemon/base/partition.c
LIBS_daemon_relay   := $(NET_LIBS)
SRC_daemon_rights   := daemon/vm/rights.c daemon/base/partition.c
LIBS_daemon_rights  := $(COMMON_LIBS)
SRC_daemon_repath   := daemon/vm/repath.c daemon/vm/reroute.c
LIBS_daemon_repath  := $(NET_LIBS)
SRC_daemon_mover    := daemon/fleet/jobs.c daemon/base/job.c daemon/base/strategy.c
LIBS_daemon_mover   := $(NET_LIBS)
SRC_daemon_qmp      := daemon/libvirt/qmp.c
LIBS_daemon_qmp     := $(COMMON_LIBS)
SRC_daemon_rest     := tests/sim/documented.c

SRC_lab_port        := $(addprefix tests/lab/port/,wire.c bridge.c port.c)
LIBS_lab_port       := $(COMMON_LIBS) -libmad -libumad

# The shim's files by folder; a test takes those that it is about and those that they call.
shim_src         = $(foreach f,$(1),guest-agent/shim/$(f).c)
SHIM_POST       := $(call shim_src,$(addprefix verbs/,post recv cq arm mw) core/table core/lock)
SHIM_CM         := $(call shim_src,core/sleep $(addprefix cm/,id channel conn ep redo job route) peer/route)
SHIM_REGIONS    := $(call shim_src,verbs/mr verbs/dirty core/batch verbs/domain core/table)
SRC_guest_run        := guest-agent/run/check.c guest-agent/run/elf.c
SRC_guest_table      := $(call shim_src,core/table)
SRC_guest_post       := $(SHIM_POST)
SRC_guest_ud         := $(SHIM_POST) $(call shim_src,verbs/ud verbs/ud_send ud/peer port/lid)
SRC_guest_relay      := guest-agent/agent/relay.c guest-agent/agent/sender.c
LIBS_guest_kernel    := $(COMMON_LIBS) -lnl-3
FLAGS_guest_kernel   := -I/usr/include/libnl3
SRC_guest_dirty      := $(SHIM_REGIONS)
SRC_guest_regions    := $(SHIM_REGIONS) $(call shim_src,job/region core/maps)
SRC_guest_path_cache := guest-agent/agent/path_cache.c
SRC_guest_route      := $(call shim_src,peer/route peer/lid port/lid)
SRC_guest_ex         := $(SHIM_POST) $(call shim_src,verbs/ex_qp verbs/ex_cq verbs/domain)
SRC_guest_srq        := $(call shim_src,verbs/srq verbs/xrc core/table core/lock)
SRC_guest_mw         := $(call shim_src,verbs/mw core/table)
SRC_guest_enter      := $(call shim_src,job/job verbs/hold core/part core/lock)
SRC_guest_suspend    := $(SHIM_POST) $(call shim_src,job/suspend job/stuck core/part core/objects core/batch verbs/srq verbs/xrc)
SRC_guest_resume     := $(call shim_src,job/resume verbs/mw core/part core/batch core/table core/lock)
SRC_guest_part       := $(call shim_src,core/part)
SRC_guest_cm         := $(SHIM_CM)
SRC_guest_cm_ids     := $(SHIM_CM)
SRC_guest_senders    := $(SRC_guest_relay) $(call shim_src,deliver peer/peer port/lid verbs/keys verbs/ud verbs/ud_send ud/peer core/part core/table core/lock)
SRC_guest_peer       := $(call shim_src,deliver peer/peer port/lid verbs/keys core/part core/table core/lock)

# Tests of the shim as it is shipped, preloaded above a libibverbs that is played (tests/fake/verbs).
GUEST_PLAYED := cost fork events lost again odd reset repath gone lids by_lid xrc pkeys gids
GUEST_LOADED := dlopen mlx5
$(foreach t,$(GUEST_PLAYED),$(eval SRC_guest_$(t) := $(RIG))$(eval LIBS_guest_$(t) := $(COMMON) -libverbs -lpthread -ldl))
$(foreach t,$(GUEST_LOADED),$(eval SRC_guest_$(t) := tests/fake/verbs/rig_exec.c tests/fake/verbs/agent.c))
LIBS_guest_dlopen := -lpthread -ldl
LIBS_guest_mlx5   := -lmlx5 -lpthread -ldl
$(foreach t,$(GUEST_PLAYED) $(GUEST_LOADED),$(BUILD)/tests/test_guest_$(t)): | $(FAKE) $(BUILD)/lib/libibvmig.so $(BUILD)/lib/libibvmig-dl.so

# $(call unit_test,PART,FOLDER,NAME)
define unit_test
$(call testprogram,test_$(1)_$(3),tests/unit/$(2)/$(3).c $(SRC_$(1)_$(3)),$(or $(LIBS_$(1)_$(3)),$(UNIT_LIBS_$(1))) $(foreach f,$(WRAP_$(1)_$(3)),-Wl$(comma)--wrap=$(f)),$(FLAGS_$(1)_$(3)))
endef
# $(call unit_tests,PART,FOLDER,FILES THAT ARE NO TESTS)
unit_tests = $(foreach n,$(filter-out $(3),$(basename $(notdir $(wildcard tests/unit/$(2)/*.c)))),$(eval $(call unit_test,$(1),$(2),$(n))))
$(call unit_tests,common,common)
$(call unit_tests,vswitch,vswitch)
$(call unit_tests,sm,sm-helper)
$(call unit_tests,daemon,daemon)
$(call unit_tests,guest,guest-agent,race)
$(call unit_tests,lab,lab)
