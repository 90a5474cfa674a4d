/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/rest/listen.h"
#include "common/http/client.h"
#include "common/log.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

int listen_secure(struct listeners *l, const struct conf *conf, sd_event *loop)
{
	char *error AUTO_FREE = NULL;
	int rc = tls_conf_read(conf, &l->conf, &error);

	if (!rc && l->conf.on)
		rc = tls_new(&l->conf.files, &l->tls, &error);
	if (!rc && l->tls && loop)
		rc = tls_watch(l->tls, loop);
	if (rc)
		log_error("%s", error ? error : strerror(-rc));
	else
		http_client_secure(l->tls, !l->conf.on || l->conf.insecure);
	return rc;
}

/* A listening socket, or -errno. tls: whether this listener can have it. */
static int open_socket(const struct listeners *l, const char *key, const char *where, bool tls)
{
	struct tls_conf conf = l->conf;
	char *error AUTO_FREE = NULL;
	int fd;

	conf.on &= tls;
	fd = *where == '/' ? http_listen_unix(where, 0660)
			   : tls_conf_check_listen(&conf, key, where, &error);
	if (!fd && *where != '/' && tls)
		tls_conf_warn_of_users(&conf, key, where);
	if (!fd && *where != '/')
		fd = http_listen_tcp(where);
	if (fd < 0 && error && !tls)
		log_error("%s = %s: there is no TLS on this one: give it a path, or an address of "
			  "this machine, or set insecure = yes",
			  key, where);
	else if (fd < 0 && error)
		log_error("%s", error);
	else if (fd < 0)
		log_error(
			"%s = %s: cannot listen: %s; a value is a path, or ADDR:PORT of this host",
			key, where, strerror(-fd));
	return fd;
}

int listen_rest(struct listeners *l, const struct conf *conf, sd_event *loop, struct rest *rest)
{
	const char *where = conf_nth(conf, "listen", 0);
	unsigned per_s = (unsigned)conf_number(conf, "requests-per-s");
	int rc = 0;

	rest->roles = &l->conf.roles;
	if (!where)
		where = LISTEN_DEFAULT;
	for (unsigned i = 0; rc >= 0 && where && i < LISTEN_MAX; i++) {
		int fd = open_socket(l, "listen", where, true);

		rc = fd < 0 ? fd
			    : http_server_new(loop, fd, *where == '/' ? NULL : l->tls, rest_routes,
					      rest, &l->server[i]);
		if (rc < 0)
			break;
		http_server_set_roles(l->server[i], rest_roles);
		rc = http_server_limit(l->server[i], per_s);
		log_info("listens on %s", where);
		where = conf_nth(conf, "listen", i + 1);
	}
	return rc;
}

int listen_paths(struct listeners *l, const struct conf *conf, sd_event *loop, struct rest *rest,
		 struct work_pool *pool)
{
	/* Clients here have no names by which they could be told of a change. */
	bool cacheable = rest->caching && !rest->holders;
	const char *where;
	int rc = 0;

	for (unsigned i = 0; i < LISTEN_MAX && (where = conf_nth(conf, "paths-listen", i)); i++) {
		int fd = open_socket(l, "paths-listen", where, false);

		rc = fd < 0 ? fd
			    : path_server_new(loop, fd, rest->ops->paths, pool, cacheable,
					      &l->path_server[i]);
		if (rc < 0)
			break;
		log_info("answers batches of path queries on %s", where);
	}
	return rc;
}

char *listen_url(const struct listeners *l, const struct conf *conf)
{
	const char *where = conf_nth(conf, "listen", 0), *next = where;

	for (size_t i = 1; next && *where != '/'; next = conf_nth(conf, "listen", i++))
		where = *next == '/' ? next : where;
	if (!where)
		where = LISTEN_DEFAULT;
	return strf("%s%s", *where == '/' ? "unix:" : l->tls ? "https://" : "http://", where);
}

void listen_stop(struct listeners *l)
{
	for (unsigned i = 0; i < LISTEN_MAX; i++)
		http_server_free(TAKE(l->server[i]));
}

void listen_clear(struct listeners *l)
{
	for (unsigned i = 0; i < LISTEN_MAX; i++)
		path_server_free(TAKE(l->path_server[i]));
	http_client_secure(NULL, false);
	tls_free(TAKE(l->tls));
	tls_conf_clear(&l->conf);
}
