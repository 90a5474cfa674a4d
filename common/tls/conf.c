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
		t->files.file[i] = conf_get(c, keys[i]);
		given += t->files.file[i] != NULL;
	}
	t->on = given == TLS_FILES;
	if (!given || t->on)
		return 0;
	char *where AUTO_FREE = conf_where(c, NULL);
	*ret_error = strf("%stls-cert, tls-key and tls-ca go together: %u of them is not given",
			  where ? where : "", TLS_FILES - given);
	return -EINVAL;
}

int tls_conf_read(const struct conf *c, struct tls_conf *ret_conf, char **ret_error)
{
	struct tls_conf t = {.conf = c, .insecure = conf_flag(c, "insecure")};
	int rc = read_files(c, &t, ret_error);
	const char *line;

	for (size_t i = 0; !rc && (line = conf_nth(c, "role", i)); i++) {
		rc = role_table_add(&t.roles, line);
		if (rc == -EINVAL)
			conf_refuse(c, line, ret_error,
				    "must be ROLE NAME, as in \"peer *.cloud.example\"; ROLE is "
				    "read-only, nova, peer or replica, NAME a name in the "
				    "certificate");
		else if (rc)
			conf_refuse(c, line, ret_error, "at most %d lines", ROLE_ROWS_MAX);
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

/* A value that the configuration holds, or one of a caller that has none. */
static int refuse(const struct tls_conf *t, const char *key, const char *value, const char *why,
		  char **ret_error)
{
	if (t->conf)
		return conf_refuse(t->conf, value, ret_error, "%s", why);
	*ret_error = strf("%s = %s: %s", key, value, why);
	return -EINVAL;
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
	return refuse(t, key, address,
		      "others than this machine are served with TLS: give tls-cert, tls-key and "
		      "tls-ca (ibvmig-certs makes them), or set insecure = yes if only trusted "
		      "hosts reach that address",
		      ret_error);
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
	if (!strncmp(url, "https://", 8) && url[8])
		return t->on ? 0
			     : refuse(t, key, url, "https needs tls-cert, tls-key and tls-ca",
				      ret_error);
	if (!strncmp(url, "http://", 7) && url[7])
		return t->insecure ? 0
				   : refuse(t, key, url,
					    "must begin with https://, or set insecure = yes if "
					    "nobody else is on that network",
					    ret_error);
	return refuse(t, key, url, "must be https://HOST:PORT or unix:PATH", ret_error);
}
