/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/settings.h"
#include "common/conf.h"
#include "common/util.h"
#include "daemon/base/limits.h"
#include "daemon/store/lease.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <string.h>

#define MIB               (1ull << 20)
#define SAVED_PEERS_MAX_S 86400
#define KEEP_MIN          100
#define KEEP_MAX          100000

static char host_name_default[HOST_NAME_MAX + 1];

static const char *const known_keys[] = {
	"host-name",     "listen",          "url",          "socket",
	"state-dir",     "lease-dir",       "sm-url",       "peer",
	"provider-exec", "libvirt-uri",     "hold-bytes",   "ballast-bytes",
	"require-agent", "saved-peers-s",   "migrate-uri",  "admin-group",
	"read-group",    "requests-per-s",  "provider",     "pf",
	"vf-policy",     "vfio-driver",     "vfio-backend", "device-property",
	"pre-attach",    "keep-migrations", TLS_CONF_KEYS,  NULL,
};

static int read_bytes(struct settings *s, const char *key, uint64_t fallback, uint64_t min,
		      uint64_t max, uint64_t *ret_value, char **ret_error)
{
	const char *text = conf_get(s->conf, key, NULL);

	if (!text) {
		*ret_value = fallback;
		return 0;
	}
	if (!parse_u64(text, min, max, ret_value))
		return 0;
	*ret_error = strf("%s = %s: must be a number of bytes from %llu to %llu", key, text,
			  (unsigned long long)min, (unsigned long long)max);
	return -EINVAL;
}

/* Other hosts ask for what has ended here for as long as they are not done with it themselves. */
static int read_keep(struct settings *s, char **ret_error)
{
	const char *text = conf_get(s->conf, "keep-migrations", "1000");
	uint64_t n = 0;

	if (parse_u64(text, KEEP_MIN, KEEP_MAX, &n)) {
		*ret_error = strf("keep-migrations = %s: must be a number of records from %d to %d",
				  text, KEEP_MIN, KEEP_MAX);
		return -EINVAL;
	}
	s->keep_migrations = (unsigned)n;
	return 0;
}

static int read_saved(struct settings *s, char **ret_error)
{
	const char *text = conf_get(s->conf, "saved-peers-s", "60");
	uint64_t n = 0;

	if (parse_u64(text, 0, SAVED_PEERS_MAX_S, &n)) {
		*ret_error = strf("saved-peers-s = %s: must be a number of seconds from 0 to %d",
				  text, SAVED_PEERS_MAX_S);
		return -EINVAL;
	}
	s->saved_peers_s = (unsigned)n;
	return 0;
}

/* How QEMU lets a device leave: only the administrator knows it before QEMU is there. */
static int read_pre_attach(struct settings *s, char **ret_error)
{
	const char *text = conf_get(s->conf, "pre-attach", "no");

	if (!strcmp(text, QMP_PAIR_ID) || !strcmp(text, QMP_LATE_DETACH)) {
		s->pre_attach = text;
		return 0;
	}
	if (!strcmp(text, "no"))
		return 0;
	*ret_error = strf("pre-attach = %s: must be no, " QMP_PAIR_ID " or " QMP_LATE_DETACH
			  ": the property by which this host's QEMU lets a device leave while it "
			  "migrates",
			  text);
	return -EINVAL;
}

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
			*ret_error = strf("peer = %s: must be NAME https://HOST:PORT, at most %d "
					  "lines",
					  line, SETTINGS_PEERS_MAX);
			return -EINVAL;
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
	const char *url = conf_get(s->conf, "url", NULL);

	int rc = tls_conf_read(s->conf, &s->tls, ret_error);

	s->listen = conf_get(s->conf, "listen", NULL);
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
	const char *name = conf_get(s->conf, key, NULL);
	struct group *g = name ? getgrnam(name) : NULL;

	if (name && !g) {
		*ret_error = strf("%s = %s: there is no such group on this host", key, name);
		return -EINVAL;
	}
	*ret_group = (struct settings_group){.given = g, .gid = g ? g->gr_gid : 0};
	return 0;
}

static int read_access(struct settings *s, char **ret_error)
{
	const char *rate = conf_get(s->conf, "requests-per-s", "5000");
	uint64_t n = 0;
	int rc;

	if (parse_u64(rate, 0, 1000000, &n)) {
		*ret_error = strf("requests-per-s = %s: must be a number from 0 (no limit) to "
				  "1000000",
				  rate);
		return -EINVAL;
	}
	s->requests_per_s = (unsigned)n;
	rc = read_group(s, "admin-group", &s->admin_group, ret_error);
	return rc ? rc : read_group(s, "read-group", &s->read_group, ret_error);
}

/* Must be said: the cards of a host, taken unasked, could be its own network. */
static int read_provider(struct settings *s, char **ret_error)
{
	const char *name = conf_get(s->conf, "provider", NULL);

	s->provider_exec = conf_get(s->conf, "provider-exec", NULL);
	if (!name && s->provider_exec)
		name = "exec";
	if (str_eq(name, "exec") && s->provider_exec)
		return 0;
	if (str_eq(name, "mlx5") && !s->provider_exec)
		return 0;
	*ret_error = strf("where do VFs come from? \"provider = mlx5\" for ConnectX cards, or "
			  "\"provider-exec = PROGRAM\" for a program that prepares VFs; not both");
	return -EINVAL;
}

static int fill(struct settings *s, char **ret_error)
{
	const struct conf *c = s->conf;
	int rc;

	gethostname(host_name_default, sizeof host_name_default - 1);
	s->host_name = conf_get(c, "host-name", host_name_default);
	s->socket = conf_get(c, "socket", "/run/ibvmig/ibvmigd.sock");
	s->state_dir = conf_get(c, "state-dir", "/var/lib/ibvmig");
	s->lease_dir = conf_get(c, "lease-dir", LEASE_DIR);
	s->sm_url = conf_get(c, "sm-url", NULL);
	s->libvirt_uri = conf_get(c, "libvirt-uri", "qemu:///system");
	s->migrate_uri = conf_get(c, "migrate-uri", "qemu+tls://%s/system");
	s->require_agent = true;
	if (!strstr(s->migrate_uri, "%s")) {
		*ret_error = strf("migrate-uri = %s: must hold %%s in the place of the host's name",
				  s->migrate_uri);
		return -EINVAL;
	}
	rc = conf_read_bool(c, "require-agent", &s->require_agent, ret_error);
	if (!rc)
		rc = read_provider(s, ret_error);
	if (!rc)
		rc = read_bytes(s, "hold-bytes", 8 * MIB, 4 * MIB, 1024 * MIB, &s->hold_bytes,
				ret_error);
	if (!rc)
		rc = read_bytes(s, "ballast-bytes", 8 * MIB, 0, 1024 * MIB, &s->ballast_bytes,
				ret_error);
	if (!rc)
		rc = read_keep(s, ret_error);
	if (!rc)
		rc = read_saved(s, ret_error);
	if (!rc)
		rc = read_pre_attach(s, ret_error);
	if (!rc)
		rc = read_access(s, ret_error);
	if (!rc)
		rc = read_listen(s, ret_error);
	return rc ? rc : read_peers(s, ret_error);
}

int settings_load(const char *path, struct settings **ret_settings, char **ret_error)
{
	struct settings *s = calloc(1, sizeof *s);
	int rc = s ? conf_load(path, known_keys, &s->conf, ret_error) : -ENOMEM;

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
