/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The API's calls about the VMs of this host. */
#ifndef IBVMIG_DAEMON_VM_CALLS_H
#define IBVMIG_DAEMON_VM_CALLS_H

struct daemon;
struct http_request;
struct printbuf;
struct vm;

/* The VM that the path names, by name or UUID; NULL if this host has none such: the request has
 * been answered with 404 then. */
struct vm *rest_vm(struct http_request *req);
/* "vms":[...], as vm_write_status() tells of each. */
void vm_write_list(struct printbuf *text, const struct daemon *d);

/* GET /v1/vms, GET /v1/vms/NAME, POST /v1/vms/NAME/attach */
void vm_get_all(struct http_request *req);
void vm_get(struct http_request *req);
void vm_post_attach(struct http_request *req);

#endif
