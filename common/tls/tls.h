/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A daemon proves itself with one certificate and its key, and believes others by the CA of the
 * site: its server and its calls alike (mutual TLS 1.3, GnuTLS). A changed file is
 * taken over while the daemon runs; one that is no good changes nothing. */
#ifndef IBVMIG_COMMON_TLS_TLS_H
#define IBVMIG_COMMON_TLS_TLS_H

#include <gnutls/gnutls.h>
#include <systemd/sd-event.h>
#include <time.h>

#define TLS_FILE_MAX (256u << 10)
#define TLS_PATH_MAX 32
#define TLS_PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.3:%NO_TICKETS"

enum { TLS_CERT, TLS_KEY, TLS_CA, TLS_FILES };

/* PEM files. cert may hold a chain, ca several CAs. */
struct tls_files {
	const char *file[TLS_FILES];
};

/* A consistent state of the three files. Constant; counted, from any thread. */
struct tls_keys {
	gnutls_certificate_credentials_t cred;
	/* The same for libraries that want files, as they were read: paths into memory. */
	char path[TLS_FILES][TLS_PATH_MAX];
	time_t not_after;   /* when the certificate ends, or the last CA where that ends before */
	int fds[TLS_FILES]; /* owned */
	unsigned refs;      /* atomic */
};

struct tls; /* owned by the caller of tls_new() */

/* files: its strings are borrowed for the life of tls. 0, or -errno with a line in *ret_error
 * (owned by the caller) that names the file and what is wrong. */
int tls_new(const struct tls_files *files, struct tls **ret_tls, char **ret_error);
void tls_free(struct tls *t);

/* Reads the files again. Whoever asks from now on gets the new state; on an error, also
 * -EKEYEXPIRED, the old one. As tls_new(), which takes an expired certificate: a daemon that does
 * not start is of even less use. */
int tls_reload(struct tls *t, char **ret_error);

/* The present state, a reference of the caller's. Any thread. */
struct tls_keys *tls_keys_get(struct tls *t);
void tls_keys_put(struct tls_keys *k);

/* Reloads on SIGHUP, and when one of the names is given to another file or its file is written;
 * logs what came of it. SIGHUP must be blocked (loop_new()). 0 or -errno. */
int tls_watch(struct tls *t, sd_event *loop);

#endif
