/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libibvmig-dl.so: see shim/core/dl.c. A library must hold something. */
extern const char ibvmig_dl_stub;
const char ibvmig_dl_stub = 1;
