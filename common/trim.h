/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Pages that only the start of a program needed. */
#ifndef IBVMIG_COMMON_TRIM_H
#define IBVMIG_COMMON_TRIM_H

/* Gives back the pages of code and constants of the program and of its libraries, which are as they
 * are in their files. Pages that are used again come back from the page cache, by a minor fault for
 * 64 KiB. Half of what a program of sixty libraries has mapped was read once, by the dynamic linker
 * and by constructors. What the linker has written to and all data stay. */
void trim_code(void);

#endif
