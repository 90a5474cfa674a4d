/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Configuration files say the same of TLS for all daemons: tls-cert, tls-key, tls-ca, role,
 * insecure. Without TLS, a daemon is only at the addresses of its own machine, unless insecure says
 * otherwise. */
#ifndef IBVMIG_COMMON_TLS_CONF_H
#define IBVMIG_COMMON_TLS_CONF_H

#include "common/conf.h"
#include "common/tls/roles.h"
#include "common/tls/tls.h"

#include <stdbool.h>

/* The rows of a table of settings. name: of the files in the example; roles: lines there. */
#define TLS_SETTINGS(name, roles)                                                                  \
	{.section = "TLS and roles"},                                                              \
		{.key = "tls-cert",                                                                \
		 .form = "a PEM file",                                                             \
		 .example = "/etc/ibvmig/tls/" name ".pem",                                        \
		 .help = "The certificate that is shown to others; ibvmig-certs makes the files. " \
			 "tls-cert, tls-key and tls-ca are given all or none. They are read "      \
			 "again on SIGHUP and when they change."},                                 \
		{.key = "tls-key",                                                                 \
		 .form = "a PEM file",                                                             \
		 .example = "/etc/ibvmig/tls/" name ".key",                                        \
		 .help = "The certificate's key."},                                                \
		{.key = "tls-ca",                                                                  \
		 .form = "a PEM file",                                                             \
		 .example = "/etc/ibvmig/tls/ca.pem",                                              \
		 .help = "The site's CA: others must show a certificate of it."},                  \
		{.key = "role",                                                                    \
		 .many = true,                                                                     \
		 .form = "ROLE NAME",                                                              \
		 .example = roles,                                                                 \
		 .help = "Who shows a certificate with that CN, DNS name, IP address or URI has "  \
			 "that role: peer, nova, read-only or replica. *.DOMAIN stands for all "   \
			 "names that end so. Several lines that fit add up; whom no line names "   \
			 "may do nothing."},                                                       \
	{                                                                                          \
		.key = "insecure", .type = SETTING_FLAG, .fallback = "no",                         \
		.help = "Whether TCP without TLS is allowed beyond this machine. Such a listener " \
			"gives every caller what other hosts may do."                              \
	}

struct tls_conf {
	bool on;                 /* files are given */
	bool insecure;           /* plain HTTP to and from anywhere is wanted */
	const struct conf *conf; /* borrowed, for messages; NULL: they name no line */
	struct tls_files files;  /* borrowed from the configuration, as the table's names */
	struct role_table roles;
};

/* 0, or -errno and a line in *ret_error (owned by the caller) that says what to change. The same
 * for the checks. */
int tls_conf_read(const struct conf *c, struct tls_conf *ret_conf, char **ret_error);
void tls_conf_clear(struct tls_conf *t);
/* True if a URL leads to this machine: unix:PATH, or http:// to a loopback address. */
bool tls_url_is_local(const char *url);
/* Checks that a daemon may listen at ADDR:PORT, value of key in the configuration. */
int tls_conf_check_listen(const struct tls_conf *t, const char *key, const char *address,
			  char **ret_error);
/* Says so in the log where every user of this machine may connect to it: at an address of its own,
 * without TLS. */
void tls_conf_warn_of_users(const struct tls_conf *t, const char *key, const char *address);
/* Checks that it may call a URL, value of key: unix:PATH, https:// with TLS, http:// as above. */
int tls_conf_check_url(const struct tls_conf *t, const char *key, const char *url,
		       char **ret_error);

#endif
