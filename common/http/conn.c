/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The server's connections: who is at the other end, TLS with whom we believe, and how long a
 * client may take to say what it wants. */
#include "common/http/private.h"
#include "common/log.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define NAMES_MAX     4096
#define NAME_MAX_LEN  256
#define TELL_EVERY_US 1000000

/* ---- who asks ---- */

static void read_local(struct http_who *who, int fd)
{
	struct ucred cred = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	socklen_t bytes = sizeof cred;

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes);
	who->uid = cred.uid;
	bytes = sizeof who->groups - sizeof *who->groups;
	/* More groups than fit, or a kernel before 4.13: the first one alone. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, who->groups, &bytes))
		bytes = 0;
	who->group_count = bytes / sizeof *who->groups;
	who->groups[who->group_count++] = cred.gid;
}

static void read_address(char address[static HTTP_ADDRESS_MAX], int fd)
{
	struct sockaddr_in a = {0};
	socklen_t bytes = sizeof a;

	if (!getpeername(fd, (struct sockaddr *)&a, &bytes) && a.sin_family == AF_INET)
		inet_ntop(AF_INET, &a.sin_addr, address, HTTP_ADDRESS_MAX);
}

/* A client that cannot be told is nobody: a local user that no rule knows. */
static void read_who(struct http_who *who, int fd)
{
	socklen_t bytes = sizeof(int);
	int domain = AF_UNIX;

	*who = (struct http_who){.local = true, .uid = (uid_t)-1};
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes))
		return;
	who->local = domain == AF_UNIX;
	if (who->local)
		read_local(who, fd);
	else
		read_address(who->address, fd);
}

/* ---- certificates ---- */

/* Only that part of a name is kept which can be shown and compared. */
static void add_name(char *names, const char *name, size_t n)
{
	size_t at = strlen(names);

	if (!n || n >= NAME_MAX_LEN || at + n + 2 > NAMES_MAX)
		return;
	for (size_t i = 0; i < n; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return;
	snprintf(names + at, NAMES_MAX - at, "%s%.*s", at ? "\n" : "", (int)n, name);
}

static void add_alternatives(char *names, gnutls_x509_crt_t crt)
{
	for (unsigned i = 0;; i++) {
		char san[NAME_MAX_LEN], text[INET6_ADDRSTRLEN] = "";
		size_t n = sizeof san;
		unsigned critical;
		int type = gnutls_x509_crt_get_subject_alt_name(crt, i, san, &n, &critical);

		if (type == GNUTLS_E_SHORT_MEMORY_BUFFER)
			continue;
		if (type < 0)
			return;
		if (type == GNUTLS_SAN_DNSNAME || type == GNUTLS_SAN_URI)
			add_name(names, san, strnlen(san, n));
		if (type == GNUTLS_SAN_IPADDRESS && (n == 4 || n == 16) &&
		    inet_ntop(n == 4 ? AF_INET : AF_INET6, san, text, sizeof text))
			add_name(names, text, strlen(text));
	}
}

/* The names in the certificate that the handshake has verified. "?" without any. */
static char *read_names(gnutls_session_t session)
{
	unsigned count = 0;
	const gnutls_datum_t *list = gnutls_certificate_get_peers(session, &count);
	char *names = calloc(1, NAMES_MAX), cn[NAME_MAX_LEN];
	size_t n = sizeof cn;
	gnutls_x509_crt_t crt;

	if (!names || !list || !count || gnutls_x509_crt_init(&crt))
		return names;
	if (!gnutls_x509_crt_import(crt, list, GNUTLS_X509_FMT_DER)) {
		if (!gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, cn, &n))
			add_name(names, cn, strnlen(cn, n));
		add_alternatives(names, crt);
	}
	gnutls_x509_crt_deinit(crt);
	if (!*names)
		strcpy(names, "?");
	return names;
}

/* Why a certificate is not believed, once a second at most: anybody can connect. */
static void tell_stranger(struct http_conn *c, const char *why)
{
	uint64_t now = now_us();

	c->server->counters.strangers++;
	if (c->server->told_us && now - c->server->told_us < TELL_EVERY_US)
		return;
	c->server->told_us = now;
	log_notice("TLS: %s is refused: %s", c->who.address, why);
}

static int verify(gnutls_session_t session)
{
	gnutls_typed_vdata_st purpose = {
		.type = GNUTLS_DT_KEY_PURPOSE_OID,
		.data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT,
	};
	struct http_conn *c = http_conn_of(gnutls_session_get_ptr(session));
	gnutls_datum_t text = {0};
	unsigned status = 0;
	int rc = gnutls_certificate_verify_peers(session, &purpose, 1, &status);

	if (!rc && !status)
		return 0;
	if (!rc)
		gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0);
	tell_stranger(c, rc == GNUTLS_E_NO_CERTIFICATE_FOUND ? "it shows no certificate"
			 : text.data                         ? (char *)text.data
							     : gnutls_strerror(rc));
	gnutls_free(text.data);
	return -1;
}

/* Before the handshake. */
static void begin_tls(struct http_conn *c)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(
		c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	gnutls_session_t session = i ? i->tls_session : NULL;

	if (!session)
		return;
	c->keys = tls_keys_get(c->server->tls);
	gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->keys->cred);
	/* REQUEST, for with REQUIRE verify() would not be told of clients without one. */
	gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
	gnutls_session_set_verify_function(session, verify);
}

bool http_conn_is_old(const struct http_conn *c)
{
	struct tls_keys *now;

	if (!c || !c->keys)
		return false;
	now = tls_keys_get(c->server->tls);
	tls_keys_put(now); /* only the address counts */
	return now != c->keys;
}

/* ---- how long it takes ---- */

static void arm(struct http_server *s)
{
	uint64_t first = UINT64_MAX;

	if (s->stopping)
		return;
	for (struct http_conn *c = s->conns; c; c = c->next)
		if (c->due_us && c->due_us < first)
			first = c->due_us;
	sd_event_source_set_time(s->due, first);
	sd_event_source_set_enabled(s->due, first == UINT64_MAX ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

int http_conn_late(sd_event_source *source, uint64_t usec, void *server)
{
	struct http_server *s = server;
	uint64_t now = now_us();

	(void)source;
	(void)usec;
	for (struct http_conn *c = s->conns; c; c = c->next) {
		if (!c->due_us || c->due_us > now)
			continue;
		/* libmicrohttpd sees the end, and closes it. */
		shutdown(c->fd, SHUT_RDWR);
		c->due_us = 0;
		s->counters.late++;
	}
	arm(s);
	return 0;
}

void http_conn_busy(struct http_conn *c)
{
	const union MHD_ConnectionInfo *i;

	if (!c)
		return;
	c->due_us = 0;
	if (!c->keys || c->who.names)
		return;
	i = MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	c->who.names = i ? read_names(i->tls_session) : NULL;
}

/* An idle one is closed by libmicrohttpd; one that begins a request and never ends it, here. */
void http_conn_idle(struct http_conn *c)
{
	if (!c)
		return;
	c->due_us = now_us() + HTTP_IDLE_S * 1000000ull + c->server->request_ms * 1000ull;
	arm(c->server);
}

/* ---- come and go ---- */

static struct http_conn *conn_new(struct http_server *s, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_conn *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->server = s;
	c->mhd = mhd;
	c->fd = i ? i->connect_fd : -1;
	read_who(&c->who, c->fd);
	c->due_us = now_us() + s->request_ms * 1000ull;
	if ((c->next = s->conns))
		c->next->prev = c;
	s->conns = c;
	if (s->tls)
		begin_tls(c);
	return c;
}

static void conn_free(struct http_conn *c)
{
	if (c->next)
		c->next->prev = c->prev;
	*(c->prev ? &c->prev->next : &c->server->conns) = c->next;
	tls_keys_put(c->keys);
	free(c->who.names);
	free(c);
}

void http_conn_notify(void *server, struct MHD_Connection *mhd, void **context,
		      enum MHD_ConnectionNotificationCode what)
{
	struct http_server *s = server;

	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		*context = conn_new(s, mhd);
	else if (*context)
		conn_free(TAKE(*context));
	/* At its limit libmicrohttpd listens again in its next run only: nobody else calls that. */
	if (what == MHD_CONNECTION_NOTIFY_CLOSED && !s->stopping)
		http_wake(s);
	arm(s);
}

struct http_conn *http_conn_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *i = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return i ? i->socket_context : NULL;
}
