/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The partitions of this host's vGUIDs, for `ibvmig status` and the relay: what ibvmig-sm told
 * last.
 */
#ifndef IBVMIG_DAEMON_VM_RIGHTS_H
#define IBVMIG_DAEMON_VM_RIGHTS_H

struct daemon;
struct vm_vf;

/* Asks again if that was a while ago. Nobody waits: the next status has the answer. */
void vm_rights_refresh(struct daemon *d);
/* Asks anew: a VM has come, or others have P_Keys of which this host has not heard. */
void vm_rights_news(struct daemon *d);
/* "full", "limited" or "none" of the partition of its P_Key; NULL: not known. */
const char *vm_right(const struct daemon *d, const struct vm_vf *v);

#endif
