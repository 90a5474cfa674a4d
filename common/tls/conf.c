/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/tls/conf.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

static int read_files(const struct conf *c, struct tls_conf *t, char **ret_error)
{
	static const char *const keys[TLS_FILES] = {"tls-cert", "tls-key", "tls-ca"};
	unsigned given = 0;

	for (size_t i = 0; i < TLS_FILES; i++) {
		t->files.file[i] = conf_get(c, keys[i], NULL);
		given += t->files.file[i] != NULL;
	}
	t->on = given == TLS_FILES;
	if (!given || t->on)
		return 0;
	*ret_error = strf("tls-cert, tls-key and tls-ca go together: %u of them is not given",
			  TLS_FILES - given);
	return -EINVAL;
}

int tls_conf_read(const struct conf *c, struct tls_conf *ret_conf, char **ret_error)
{
	struct tls_conf t = {0};
	int rc = conf_read_bool(c, "insecure", &t.insecure, ret_error);
	const char *line;

	if (!rc)
		rc = read_files(c, &t, ret_error);
	for (size_t i = 0; !rc && (line = conf_nth(c, "role", i)); i++) {
		rc = role_table_add(&t.roles, line);
		if (rc == -EINVAL)
			*ret_error = strf("role = %s: must be ROLE NAME, as in \"peer "
					  "*.cloud.example\"; ROLE is read-only, nova, peer or "
					  "replica, NAME a name in the certificate",
					  line);
		else if (rc)
			*ret_error = strf("role = %s: at most %d lines", line, ROLE_ROWS_MAX);
	}
	if (rc)
		tls_conf_clear(&t);
	else
		*ret_conf = t;
	return rc;
}

void tls_conf_clear(struct tls_conf *t)
{
	role_table_clear(&t->roles);
}

bool tls_url_is_local(const char *url)
{
	size_t n;

	if (!strncmp(url, "unix:/", 6))
		return true;
	if (strncmp(url, "http://", 7))
		return false;
	n = strcspn(url += 7, ":/");
	if (strchr(url, '@')) /* a user's name stands before it */
		return false;
	return (n == 9 && !strncmp(url, "localhost", n)) ||
	       (!strncmp(url, "127.", 4) && strspn(url, "0123456789.") == n);
}

int tls_conf_check_listen(const struct tls_conf *t, const char *key, const char *address,
			  char **ret_error)
{
	if (t->on || !strncmp(address, "127.", 4))
		return 0;
	if (t->insecure) {
		log_warn("%s = %s: without TLS (insecure = yes): whoever reaches that address may "
			 "do "
			 "what other hosts may",
			 key, address);
		return 0;
	}
	*ret_error = strf("%s = %s: others than this machine are served with TLS: give tls-cert, "
			  "tls-key and tls-ca (ibvmig-certs makes them), or set insecure = yes if "
			  "only trusted hosts reach that address",
			  key, address);
	return -EINVAL;
}

void tls_conf_warn_of_users(const struct tls_conf *t, const char *key, const char *address)
{
	if (t->on || strncmp(address, "127.", 4))
		return;
	log_warn("%s = %s: without TLS: every user of this machine may do there what other hosts "
		 "may; give tls-cert, tls-key and tls-ca (ibvmig-certs makes them), or leave it "
		 "out: the AF_UNIX socket asks the kernel who connects",
		 key, address);
}

int tls_conf_check_url(const struct tls_conf *t, const char *key, const char *url, char **ret_error)
{
	if (tls_url_is_local(url))
		return 0;
	if (!strncmp(url, "https://", 8) && url[8]) {
		if (t->on)
			return 0;
		*ret_error = strf("%s = %s: https needs tls-cert, tls-key and tls-ca", key, url);
	} else if (!strncmp(url, "http://", 7) && url[7]) {
		if (t->insecure)
			return 0;
		*ret_error = strf("%s = %s: must begin with https://, or set insecure = yes if "
				  "nobody else is on that network",
				  key, url);
	} else {
		*ret_error = strf("%s = %s: must be https://HOST:PORT or unix:PATH", key, url);
	}
	return -EINVAL;
}
