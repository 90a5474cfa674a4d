/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The configuration of ibvmig-sm: its table of settings, and what needs more than one of them. */
#ifndef IBVMIG_SM_HELPER_SETTINGS_H
#define IBVMIG_SM_HELPER_SETTINGS_H

#include "common/conf.h"
#include "sm-helper/backend/backend.h"
#include "sm-helper/moves/dynamic.h"
#include "sm-helper/notify/reroute.h"
#include "sm-helper/registry/claim.h"
#include "vswitch/moves/address.h"

/* The keys of ibvmig-sm.conf. */
extern const struct setting ibvmig_sm_settings[];

struct sm_settings {
	struct conf *conf; /* owned; holds all strings */
	const struct backend_kind *kind;
	struct backend_conf backend; /* without the probe */
	enum address_mode addresses;
	struct lid_range lids;
	struct claim_range vguids;
	enum signalling signalling;
};

/* 0, or a negative errno; *ret_error (owned by the caller) then says what to change. */
int sm_settings_load(const char *path, struct sm_settings *ret_settings, char **ret_error);
/* Checks what a start finds out later: TLS, addresses to listen at, UFM. As sm_settings_load(). */
int sm_settings_check(const struct sm_settings *s, char **ret_error);
void sm_settings_clear(struct sm_settings *s);

#endif
