/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The payload of what rdma_intruder sends, for programs that look whether any of it arrives. */
#ifndef IBVMIG_TESTS_RDMA_FOREIGN_H
#define IBVMIG_TESTS_RDMA_FOREIGN_H

#define FOREIGN_NUMBER 0xf0f0f0f0f0f0f0f0ull /* the first 8 bytes */
#define FOREIGN_QKEY   0x11111111            /* that of rdma_ud */

#endif
