# Workloads that run in the lab's guests; they know nothing of ibvmig.
$(eval $(call testtool,rdma_check,tests/guest/rdma_check.c tests/guest/rdma_check_options.c tests/guest/rdma_message.c tests/guest/rdma_conn.c tests/guest/rdma_stats.c,-libverbs -lpthread))
$(eval $(call testtool,rdma_hcawrite,tests/guest/rdma_hcawrite.c tests/guest/rdma_conn.c,-libverbs))
$(eval $(call testtool,rdma_cm,tests/guest/rdma_cm.c tests/guest/rdma_stats.c,-lrdmacm -libverbs))
$(eval $(call testtool,rdma_badargs,tests/guest/rdma_badargs.c,-libverbs))
$(eval $(call testtool,rdma_ud,tests/guest/rdma_ud.c tests/guest/rdma_conn.c tests/guest/rdma_stats.c,-libverbs))
$(eval $(call testtool,rdma_intruder,tests/guest/rdma_intruder.c tests/guest/rdma_conn.c,-libverbs))
$(eval $(call testtool,rdma_scale,tests/guest/rdma_scale.c tests/guest/rdma_conn.c tests/guest/rdma_stats.c,-libverbs))
$(eval $(call testtool,rdma_mw,tests/guest/rdma_mw.c tests/guest/rdma_conn.c,-libverbs))
