/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/settings.h"
#include "common/conf.h"
#include "common/util.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <string.h>

static char host_name_default[HOST_NAME_MAX + 1];

static int read_peers(struct settings *s, char **ret_error)
{
	const char *line;

	s->peers = calloc(SETTINGS_PEERS_MAX, sizeof *s->peers);
	if (!s->peers)
		return -ENOMEM;
	for (size_t n = 0; (line = conf_nth(s->conf, "peer", n)); n++) {
		size_t name = strcspn(line, " \t");
		const char *url = line + name + strspn(line + name, " \t");

		if (n == SETTINGS_PEERS_MAX || !name || !*url) {
			return conf_refuse(s->conf, line, ret_error,
					   "must be NAME https://HOST:PORT, at most %d lines",
					   SETTINGS_PEERS_MAX);
		}
		int rc = tls_conf_check_url(&s->tls, "peer", url, ret_error);
		if (rc)
			return rc;
		s->peers[n].name = strndup(line, name);
		s->peers[n].url = strdup(url);
		s->peer_count = n + 1;
	}
	return 0;
}

static int read_listen(struct settings *s, char **ret_error)
{
	const char *url = conf_get(s->conf, "url");

	int rc = tls_conf_read(s->conf, &s->tls, ret_error);

	s->listen = conf_get(s->conf, "listen");
	if (!rc && s->listen)
		rc = tls_conf_check_listen(&s->tls, "listen", s->listen, ret_error);
	if (!rc && s->listen)
		tls_conf_warn_of_users(&s->tls, "listen", s->listen);
	if (!rc && s->sm_url)
		rc = tls_conf_check_url(&s->tls, "sm-url", s->sm_url, ret_error);
	if (rc)
		return rc;
	if (url)
		s->url = strdup(url);
	else if (s->listen)
		s->url = strf("%s://%s", s->tls.on ? "https" : "http", s->listen);
	else
		s->url = strf("unix:%s", s->socket);
	return s->url ? 0 : -ENOMEM;
}

static int read_group(struct settings *s, const char *key, struct settings_group *ret_group,
		      char **ret_error)
{
	const char *name = conf_get(s->conf, key);
	struct group *g = name ? getgrnam(name) : NULL;

	if (name && !g)
		return conf_refuse(s->conf, name, ret_error, "there is no such group on this host");
	*ret_group = (struct settings_group){.given = g, .gid = g ? g->gr_gid : 0};
	return 0;
}

/* The provider must be said: the cards of a host, taken unasked, could be its own network. */
static int read_provider(struct settings *s, char **ret_error)
{
	const char *name = conf_get(s->conf, "provider");

	s->provider_exec = conf_get(s->conf, "provider-exec");
	if (!name && s->provider_exec)
		name = "exec";
	if (str_eq(name, "exec") && s->provider_exec)
		return 0;
	if (str_eq(name, "mlx5") && !s->provider_exec)
		return 0;
	char *where AUTO_FREE = conf_where(s->conf, name);
	*ret_error = strf("%swhere do VFs come from? \"provider = mlx5\" for ConnectX cards, or "
			  "\"provider-exec = PROGRAM\" for a program that prepares VFs; not both",
			  where ? where : "");
	return -EINVAL;
}

static void read_values(struct settings *s)
{
	const struct conf *c = s->conf;
	const char *name = conf_get(c, "host-name"), *property = conf_get(c, "pre-attach");

	gethostname(host_name_default, sizeof host_name_default - 1);
	s->host_name = name ? name : host_name_default;
	s->socket = conf_get(c, "socket");
	s->state_dir = conf_get(c, "state-dir");
	s->lease_dir = conf_get(c, "lease-dir");
	s->sm_url = conf_get(c, "sm-url");
	s->libvirt_uri = conf_get(c, "libvirt-uri");
	s->migrate_uri = conf_get(c, "migrate-uri");
	s->require_agent = conf_flag(c, "require-agent");
	s->hold_bytes = conf_number(c, "hold-bytes");
	s->ballast_bytes = conf_number(c, "ballast-bytes");
	s->keep_migrations = (unsigned)conf_number(c, "keep-migrations");
	s->saved_peers_s = (unsigned)conf_number(c, "saved-peers-s");
	s->requests_per_s = (unsigned)conf_number(c, "requests-per-s");
	s->pre_attach = strcmp(property, "no") ? property : NULL;
}

static int fill(struct settings *s, char **ret_error)
{
	int rc;

	read_values(s);
	if (!strstr(s->migrate_uri, "%s"))
		return conf_refuse(s->conf, s->migrate_uri, ret_error,
				   "must hold %%s in the place of the host's name");
	rc = read_provider(s, ret_error);
	if (!rc)
		rc = read_group(s, "admin-group", &s->admin_group, ret_error);
	if (!rc)
		rc = read_group(s, "read-group", &s->read_group, ret_error);
	if (!rc)
		rc = read_listen(s, ret_error);
	return rc ? rc : read_peers(s, ret_error);
}

int settings_load(const char *path, struct settings **ret_settings, char **ret_error)
{
	struct settings *s = calloc(1, sizeof *s);
	int rc = s ? conf_load(path, ibvmigd_settings, &s->conf, ret_error) : -ENOMEM;

	if (!rc)
		rc = fill(s, ret_error);
	if (rc) {
		settings_free(s);
		return rc;
	}
	*ret_settings = s;
	return 0;
}

void settings_free(struct settings *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->peer_count; i++) {
		free(s->peers[i].name);
		free(s->peers[i].url);
	}
	free(s->peers);
	free(s->url);
	tls_conf_clear(&s->tls);
	conf_free(s->conf);
	free(s);
}

const char *settings_peer_url(const struct settings *s, const char *host_name)
{
	for (size_t i = 0; i < s->peer_count; i++)
		if (str_eq(s->peers[i].name, host_name))
			return s->peers[i].url;
	return NULL;
}

const char *settings_host_url(const struct settings *s, const char *host_name)
{
	return str_eq(host_name, s->host_name) ? s->url : settings_peer_url(s, host_name);
}
