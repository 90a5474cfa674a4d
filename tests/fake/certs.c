/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/fake/certs.h"
#include "common/util.h"

#include <arpa/inet.h>
#include <string.h>

static void need(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "certificates: %s\n", gnutls_strerror(rc));
	abort();
}

static void set_use(gnutls_x509_crt_t crt, const struct cert_wish *w)
{
	if (!w->by) {
		need(gnutls_x509_crt_set_ca_status(crt, 1));
		need(gnutls_x509_crt_set_key_usage(crt, GNUTLS_KEY_KEY_CERT_SIGN));
		return;
	}
	need(gnutls_x509_crt_set_key_usage(crt, GNUTLS_KEY_DIGITAL_SIGNATURE));
	if (w->only_purpose) {
		need(gnutls_x509_crt_set_key_purpose_oid(crt, w->only_purpose, 0));
		return;
	}
	need(gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_CLIENT, 0));
	need(gnutls_x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_SERVER, 0));
}

static void set_names(gnutls_x509_crt_t crt, const struct cert_wish *w)
{
	struct in_addr ip;

	if (w->cn)
		need(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, w->cn,
						   (unsigned)strlen(w->cn)));
	if (w->dns)
		need(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, w->dns,
							  (unsigned)strlen(w->dns),
							  GNUTLS_FSAN_APPEND));
	if (w->ip && inet_pton(AF_INET, w->ip, &ip) == 1)
		need(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, &ip, sizeof ip,
							  GNUTLS_FSAN_APPEND));
}

struct cert cert_make(const struct cert_wish *w)
{
	static unsigned char serial[] = {1, 0, 0};
	struct cert c;

	serial[2]++;
	need(gnutls_x509_privkey_init(&c.key));
	need(gnutls_x509_privkey_generate(c.key, GNUTLS_PK_ECDSA,
					  GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
	need(gnutls_x509_crt_init(&c.crt));
	need(gnutls_x509_crt_set_version(c.crt, 3));
	need(gnutls_x509_crt_set_serial(c.crt, serial, sizeof serial));
	need(gnutls_x509_crt_set_activation_time(c.crt, time(NULL) + w->starts_s));
	need(gnutls_x509_crt_set_expiration_time(c.crt, time(NULL) + w->ends_s));
	need(gnutls_x509_crt_set_key(c.crt, c.key));
	set_use(c.crt, w);
	set_names(c.crt, w);
	need(gnutls_x509_crt_sign2(c.crt, w->by ? w->by->crt : c.crt, w->by ? w->by->key : c.key,
				   GNUTLS_DIG_SHA256, 0));
	return c;
}

void cert_free(struct cert *c)
{
	gnutls_x509_crt_deinit(c->crt);
	gnutls_x509_privkey_deinit(c->key);
}

static void replace(const char *path, gnutls_datum_t *text)
{
	char *new_path AUTO_FREE = strf("%s.new", path);
	FILE *f = fopen(new_path, "w");

	if (!f || fwrite(text->data, 1, text->size, f) != text->size || fclose(f) ||
	    rename(new_path, path)) {
		perror(path);
		abort();
	}
	gnutls_free(text->data);
}

void cert_write(const struct cert *c, const char *path)
{
	gnutls_datum_t text;

	need(gnutls_x509_crt_export2(c->crt, GNUTLS_X509_FMT_PEM, &text));
	replace(path, &text);
}

void cert_write_key(const struct cert *c, const char *path)
{
	gnutls_datum_t text;

	need(gnutls_x509_privkey_export2(c->key, GNUTLS_X509_FMT_PEM, &text));
	replace(path, &text);
}
