/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CAs and certificates for tests, good ones and others. */
#ifndef IBVMIG_TESTS_FAKE_CERTS_H
#define IBVMIG_TESTS_FAKE_CERTS_H

#include <gnutls/x509.h>
#include <time.h>

struct cert {
	gnutls_x509_crt_t crt;
	gnutls_x509_privkey_t key;
};

struct cert_wish {
	const char *cn;           /* NULL: none */
	const char *dns, *ip;     /* NULL: none */
	const struct cert *by;    /* NULL: a CA, of itself */
	time_t starts_s, ends_s;  /* from now */
	const char *only_purpose; /* an OID; NULL: both client and server */
};

/* Every one of these abort()s when it fails. */
struct cert cert_make(const struct cert_wish *wish);
void cert_free(struct cert *c);
/* PEM into a file that replaces what was there. */
void cert_write(const struct cert *c, const char *path);
void cert_write_key(const struct cert *c, const char *path);

#endif
