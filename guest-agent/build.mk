# The guest side. libibvmig.so is preloaded into programs we do not know: libc only, no JSON.
AGENT_SRC := guest-agent/agent.c guest-agent/agent_host.c guest-agent/agent_shim.c \
	     guest-agent/agent_relay.c guest-agent/agent_path.c guest-agent/path_cache.c guest-agent/agent_notice.c \
	     guest-agent/agent_query.c \
	     guest-agent/agent_job.c guest-agent/agent_settle.c guest-agent/agent_device.c guest-agent/agent_ballast.c guest-agent/agent_holders.c guest-agent/agent_kernel.c guest-agent/agent_will.c
$(eval $(call program,ibvmig-agent,$(AGENT_SRC),$(BUILD)/lib/libnet.a $(COMMON) -ljson-c -lsystemd -lnl-3 -lpthread,-I/usr/include/libnl3))

SHIM_SRC := guest-agent/shim_real.c guest-agent/shim_table.c guest-agent/shim_lock.c guest-agent/shim_link.c guest-agent/shim_describe.c \
	    guest-agent/shim_context.c guest-agent/shim_mr.c guest-agent/shim_maps.c guest-agent/shim_region.c guest-agent/shim_dirty.c guest-agent/shim_channel.c guest-agent/shim_sleep.c \
	    guest-agent/shim_cq.c guest-agent/shim_arm.c guest-agent/shim_qp.c guest-agent/shim_post.c guest-agent/shim_recv.c \
	    guest-agent/shim_ex_qp.c guest-agent/shim_ex_cq.c guest-agent/shim_domain.c guest-agent/shim_refuse.c guest-agent/shim_fork.c guest-agent/shim_dl.c guest-agent/shim_mlx5.c \
	    guest-agent/shim_peer.c guest-agent/shim_keys.c guest-agent/shim_route.c guest-agent/shim_srq.c guest-agent/shim_xrc.c guest-agent/shim_mw.c guest-agent/shim_job.c \
	    guest-agent/shim_ah.c guest-agent/shim_ud.c guest-agent/shim_ud_peer.c guest-agent/shim_ud_job.c \
	    guest-agent/shim_suspend.c guest-agent/shim_stuck.c guest-agent/shim_resume.c guest-agent/shim_ahead.c guest-agent/shim_batch.c guest-agent/shim_cm.c \
	    guest-agent/shim_cm_real.c guest-agent/shim_cm_channel.c guest-agent/shim_cm_conn.c \
	    guest-agent/shim_cm_ep.c guest-agent/shim_cm_redo.c guest-agent/shim_cm_job.c guest-agent/shim_cm_route.c
$(eval $(call shared,libibvmig,$(SHIM_SRC),$(COMMON) -lpthread -ldl,,-Wl$(comma)-z$(comma)defs -Wl$(comma)--version-script$(comma)guest-agent/shim.map))
# What programs get that load libibverbs by dlopen(): no symbols, only what it needs, in this order.
$(eval $(call shared,libibvmig-dl,guest-agent/shim_dl_stub.c,-Wl$(comma)--no-as-needed -L$(BUILD)/lib -libvmig -libverbs,,-Wl$(comma)-rpath$(comma)'$$$$ORIGIN'))
$(BUILD)/lib/libibvmig-dl.so: | $(BUILD)/lib/libibvmig.so
$(eval $(call program,ibvmig-run,guest-agent/run.c guest-agent/run_check.c guest-agent/run_elf.c,$(COMMON)))
$(eval $(call testprogram,test_guest_run,tests/unit/test_guest_run.c guest-agent/run_check.c guest-agent/run_elf.c,$(COMMON)))

$(eval $(call testprogram,test_guest_table,tests/unit/test_guest_table.c guest-agent/shim_table.c,))
$(eval $(call testprogram,test_guest_post,tests/unit/test_guest_post.c guest-agent/shim_post.c guest-agent/shim_recv.c guest-agent/shim_cq.c guest-agent/shim_arm.c guest-agent/shim_mw.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_ud,tests/unit/test_guest_ud.c guest-agent/shim_ud.c guest-agent/shim_ud_peer.c guest-agent/shim_post.c guest-agent/shim_recv.c guest-agent/shim_cq.c guest-agent/shim_arm.c guest-agent/shim_mw.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_relay,tests/unit/test_guest_relay.c guest-agent/agent_relay.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_guest_kernel,tests/unit/test_guest_kernel.c,$(COMMON_LIBS) -lnl-3,-I/usr/include/libnl3))
$(eval $(call testprogram,test_guest_dirty,tests/unit/test_guest_dirty.c guest-agent/shim_mr.c guest-agent/shim_dirty.c guest-agent/shim_batch.c guest-agent/shim_domain.c guest-agent/shim_table.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_regions,tests/unit/test_guest_regions.c guest-agent/shim_region.c guest-agent/shim_maps.c guest-agent/shim_mr.c guest-agent/shim_dirty.c guest-agent/shim_batch.c guest-agent/shim_domain.c guest-agent/shim_table.c,$(COMMON) -lpthread))
$(eval $(call testtool,regions_native,tests/bench/regions_native.c guest-agent/shim_region.c guest-agent/shim_maps.c guest-agent/shim_batch.c,$(COMMON) -lpthread))
$(eval $(call testtool,pages_native,tests/bench/pages_native.c guest-agent/shim_dirty.c guest-agent/shim_batch.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_path_cache,tests/unit/test_guest_path_cache.c guest-agent/path_cache.c,))
$(eval $(call testprogram,test_guest_route,tests/unit/test_guest_route.c guest-agent/shim_route.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_ex,tests/unit/test_guest_ex.c guest-agent/shim_ex_qp.c guest-agent/shim_ex_cq.c guest-agent/shim_domain.c guest-agent/shim_post.c guest-agent/shim_recv.c guest-agent/shim_cq.c guest-agent/shim_arm.c guest-agent/shim_mw.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_srq,tests/unit/test_guest_srq.c guest-agent/shim_srq.c guest-agent/shim_xrc.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_mw,tests/unit/test_guest_mw.c guest-agent/shim_mw.c guest-agent/shim_table.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_enter,tests/unit/test_guest_enter.c guest-agent/shim_job.c guest-agent/shim_lock.c,-lpthread))
$(eval $(call testprogram,test_guest_suspend,tests/unit/test_guest_suspend.c guest-agent/shim_suspend.c guest-agent/shim_stuck.c guest-agent/shim_batch.c guest-agent/shim_srq.c guest-agent/shim_xrc.c guest-agent/shim_post.c guest-agent/shim_recv.c guest-agent/shim_cq.c guest-agent/shim_arm.c guest-agent/shim_mw.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_resume,tests/unit/test_guest_resume.c guest-agent/shim_resume.c guest-agent/shim_mw.c guest-agent/shim_batch.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_cm,tests/unit/test_guest_cm.c guest-agent/shim_sleep.c guest-agent/shim_cm.c guest-agent/shim_cm_channel.c guest-agent/shim_cm_conn.c guest-agent/shim_cm_ep.c guest-agent/shim_cm_redo.c guest-agent/shim_cm_job.c guest-agent/shim_cm_route.c guest-agent/shim_route.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_cm_ids,tests/unit/test_guest_cm_ids.c guest-agent/shim_sleep.c guest-agent/shim_cm.c guest-agent/shim_cm_channel.c guest-agent/shim_cm_conn.c guest-agent/shim_cm_ep.c guest-agent/shim_cm_redo.c guest-agent/shim_cm_job.c guest-agent/shim_cm_route.c guest-agent/shim_route.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_guest_peer,tests/unit/test_guest_peer.c guest-agent/shim_peer.c guest-agent/shim_keys.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_fuzz_peer,tests/fuzz/replay.c tests/fuzz/fuzz_peer.c guest-agent/shim_peer.c guest-agent/shim_keys.c guest-agent/shim_table.c guest-agent/shim_lock.c,$(COMMON) -lpthread))
$(eval $(call testprogram,test_fuzz_shim,tests/fuzz/replay.c tests/fuzz/fuzz_shim.c guest-agent/agent_relay.c guest-agent/agent_query.c guest-agent/agent_job.c guest-agent/agent_will.c,$(BUILD)/lib/libnet.a $(COMMON) -ljson-c -lsystemd -lpthread))
