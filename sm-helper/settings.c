/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/settings.h"
#include "common/tls/conf.h"
#include "common/util.h"
#include "sm-helper/rest/listen.h"

#include <errno.h>

const struct setting ibvmig_sm_settings[] = {
	{.section = "Where it is reached"},
	{.key = "listen",
	 .many = true,
	 .form = "a path or ADDR:PORT",
	 .unset = LISTEN_DEFAULT,
	 .example = LISTEN_DEFAULT "\n192.0.2.9:7612",
	 .help = "Where the hosts' daemons reach it. With one line the path has to be said, too. "
		 "An address needs TLS, but on 127.0.0.1."},
	{.key = "paths-listen",
	 .many = true,
	 .form = "a path or ADDR:PORT",
	 .example = "/run/ibvmig/ibvmig-paths.sock",
	 .help = "Sockets for batches of path queries. They have no TLS, so TCP needs 127.0.0.1 "
		 "or insecure."},
	{.key = "requests-per-s",
	 .type = SETTING_NUMBER,
	 .max = 1000000,
	 .means = "0 is no limit",
	 .fallback = "20000",
	 .help = "REST requests a second of one client; 0 is no limit."},
	{.key = "peer",
	 .form = "https://HOST:PORT or unix:PATH",
	 .example = "https://192.0.2.10:7612",
	 .help = "The other ibvmig-sm, where two OpenSMs run."},

	TLS_SETTINGS("sm", "peer *.compute.example"),

	{.section = "The subnet"},
	{.key = "backend",
	 .type = SETTING_WORD,
	 .form = "opensm-plugin|umad|ufm|none",
	 .fallback = BACKEND_DEFAULT,
	 .help = "Who carries out what is wanted of the subnet."},
	{.key = "plugin-socket",
	 .form = "a path",
	 .fallback = "/run/ibvmig/sm-plugin.sock",
	 .help = "The plugin's socket."},
	{.key = "umad-writes",
	 .type = SETTING_FLAG,
	 .fallback = "no",
	 .help = "Whether backend umad may write. Each bind and move then costs a heavy sweep of "
		 "the whole subnet."},
	{.key = "umad-ca",
	 .form = "a CA's name",
	 .unset = "that of the first active port",
	 .example = "mlx5_0",
	 .help = "The CA to look through."},
	{.key = "umad-port",
	 .type = SETTING_NUMBER,
	 .max = 254,
	 .fallback = "0",
	 .means = "0 is the first active port",
	 .help = "The port to look through; 0 is the first active one."},
	{.key = "verify-sources",
	 .type = SETTING_NUMBER,
	 .max = IB_LID_UCAST_MAX,
	 .fallback = "256",
	 .means = "0 is all of them",
	 .help = "From how many CA ports a verification walks at most; 0 is all of them."},
	{.key = "vswitches",
	 .type = SETTING_FLAG,
	 .fallback = "yes",
	 .help = "Whether a switch with CA ports and one uplink is the vSwitch inside an HCA. Say "
		 "no "
		 "where such switches are leaves."},
	{.key = "caching",
	 .type = SETTING_FLAG,
	 .fallback = "yes",
	 .help = "Whether path answers may be cached, here and in guests. With no each question "
		 "goes to the SA."},
	{.key = "signalling",
	 .type = SETTING_WORD,
	 .form = "interest|hybrid|wildcard|repath-only",
	 .fallback = "interest",
	 .help = "How hosts hear that a fault has changed paths: holders what they hold; all "
		 "hosts, where something changed or after each sweep; or holders, path by path."},

	{.section = "Addresses of VMs"},
	{.key = "addresses",
	 .type = SETTING_WORD,
	 .form = "prepopulated|dynamic|shared-port",
	 .fallback = "prepopulated",
	 .help = "Whether VMs have the LIDs of VFs, LIDs of their own, or those of their hosts. "
		 "Only for what is bound from now on."},
	{.key = "lid-range",
	 .form = "FIRST - LAST",
	 .unset = "above the highest LID in use",
	 .example = "20000 - 30000",
	 .help = "Where dynamic LIDs come from."},
	{.key = "vguid-range",
	 .form = "GUID - GUID",
	 .example = "0x00a1b2fffe000000 - 0x00a1b2fffe0fffff",
	 .help = "What vGUIDs are allocated from: 1 to 1048576 of them."},
	{.key = "state-dir",
	 .form = "a folder",
	 .fallback = "/var/lib/ibvmig",
	 .help = "Where the registry, ibvmig-sm.db, is."},

	{.section = "UFM"},
	{.key = "ufm-url",
	 .form = "https://HOST[:PORT]",
	 .example = "https://ufm.example",
	 .help = "UFM's address (backend ufm)."},
	{.key = "ufm-user",
	 .form = "a name",
	 .example = "ibvmig",
	 .help = "UFM's user, with ufm-password-file."},
	{.key = "ufm-password-file",
	 .form = "a file",
	 .example = "/etc/ibvmig/ufm.password",
	 .help = "The user's password, in the first line."},
	{.key = "ufm-token-file",
	 .form = "a file",
	 .example = "/etc/ibvmig/ufm.token",
	 .help = "A token, in place of user and password."},
	{.key = "ufm-ca-file",
	 .form = "a PEM file",
	 .unset = "the system's CAs",
	 .example = "/etc/ibvmig/ufm-ca.pem",
	 .help = "What UFM's certificate is checked against."},
	{.key = "ufm-insecure",
	 .type = SETTING_FLAG,
	 .fallback = "no",
	 .help = "Whether any certificate of UFM is believed."},
	{.key = "ufm-timeout-ms",
	 .type = SETTING_NUMBER,
	 .min = 1,
	 .max = 60000,
	 .form = "milliseconds",
	 .fallback = "5000",
	 .help = "The time of one call to UFM."},
	{.key = "ufm-pkeys",
	 .type = SETTING_FLAG,
	 .fallback = "no",
	 .help = "Whether a bind and PREPARE join the VM's partition in UFM, and an unbind leaves "
		 "it."},
	{0},
};

static void read_backend(struct sm_settings *s)
{
	const struct conf *c = s->conf;

	s->kind = backend_find(conf_get(c, "backend"));
	signalling_parse(conf_get(c, "signalling"), &s->signalling);
	s->backend = (struct backend_conf){
		.plugin_socket = conf_get(c, "plugin-socket"),
		.umad_writes = conf_flag(c, "umad-writes"),
		.ufm = {.url = conf_get(c, "ufm-url"),
			.user = conf_get(c, "ufm-user"),
			.password_file = conf_get(c, "ufm-password-file"),
			.token_file = conf_get(c, "ufm-token-file"),
			.ca_file = conf_get(c, "ufm-ca-file"),
			.timeout_ms = (unsigned)conf_number(c, "ufm-timeout-ms"),
			.insecure = conf_flag(c, "ufm-insecure"),
			.pkeys = conf_flag(c, "ufm-pkeys")},
	};
}

/* addresses and lid-range, as far as the backend can do them. */
static int read_addresses(struct sm_settings *s, char **ret_error)
{
	const char *mode = conf_get(s->conf, "addresses"), *range = conf_get(s->conf, "lid-range");
	const char *why = "";
	struct fabric_error e;

	if (address_mode_parse(mode, &s->addresses, &e))
		return conf_refuse(s->conf, mode, ret_error, "%s", e.text);
	if (range && s->addresses != ADDRESS_DYNAMIC)
		return conf_refuse(s->conf, range, ret_error,
				   "of no use without addresses = dynamic");
	if (range && dynamic_range_parse(range, &s->lids, &why))
		return conf_refuse(s->conf, range, ret_error, "%s", why);
	if ((s->addresses == ADDRESS_DYNAMIC && !s->kind->copies) ||
	    (s->addresses == ADDRESS_SHARED_PORT && !s->kind->guids))
		return conf_refuse(s->conf, mode, ret_error, "not possible with backend %s",
				   s->kind->name);
	return 0;
}

static int read_vguids(struct sm_settings *s, char **ret_error)
{
	const char *range = conf_get(s->conf, "vguid-range"), *why = "";

	if (range && claim_range_parse(range, &s->vguids, &why))
		return conf_refuse(s->conf, range, ret_error, "%s", why);
	return 0;
}

int sm_settings_load(const char *path, struct sm_settings *ret_settings, char **ret_error)
{
	struct sm_settings s = {0};
	int rc = conf_load(path, ibvmig_sm_settings, &s.conf, ret_error);

	if (rc)
		return rc;
	read_backend(&s);
	if ((rc = read_addresses(&s, ret_error)) || (rc = read_vguids(&s, ret_error))) {
		sm_settings_clear(&s);
		return rc;
	}
	*ret_settings = s;
	return 0;
}

/* The lines of a listener; tls: as far as it can have it. */
static int check_listen(const struct conf *c, const char *key, const struct tls_conf *tls,
			char **ret_error)
{
	const char *where;
	int rc = 0;

	for (size_t i = 0; !rc && (where = conf_nth(c, key, i)); i++)
		if (*where != '/')
			rc = tls_conf_check_listen(tls, key, where, ret_error);
	return rc;
}

int sm_settings_check(const struct sm_settings *s, char **ret_error)
{
	const char *twin = conf_get(s->conf, "peer");
	char error[UFM_ERROR_MAX];
	struct tls_conf tls, bare;
	int rc = tls_conf_read(s->conf, &tls, ret_error);

	if (rc)
		return rc;
	bare = tls;
	bare.on = false;
	rc = check_listen(s->conf, "listen", &tls, ret_error);
	if (!rc)
		rc = check_listen(s->conf, "paths-listen", &bare, ret_error);
	if (!rc && twin)
		rc = tls_conf_check_url(&tls, "peer", twin, ret_error);
	tls_conf_clear(&tls);
	if (!rc && s->kind == &backend_ufm && (rc = ufm_conf_check(&s->backend.ufm, error)))
		*ret_error = strdup(error);
	return rc;
}

void sm_settings_clear(struct sm_settings *s)
{
	conf_free(s->conf);
	s->conf = NULL;
}
