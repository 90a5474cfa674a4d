/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/tls/private.h"
#include "common/util.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <string.h>
#include <sys/mman.h>

#define CERTS_MAX 64 /* in a chain, or CAs in a file */

static void keys_free(struct tls_keys *k)
{
	if (k->cred)
		gnutls_certificate_free_credentials(k->cred);
	for (size_t i = 0; i < ARRAY_SIZE(k->fds); i++)
		if (k->fds[i] >= 0)
			close(k->fds[i]);
	free(k);
}

void tls_keys_put(struct tls_keys *k)
{
	if (k && __atomic_sub_fetch(&k->refs, 1, __ATOMIC_ACQ_REL) == 0)
		keys_free(k);
}

struct tls_keys *tls_keys_get(struct tls *t)
{
	pthread_mutex_t *m AUTO_UNLOCK = mutex_lock(&t->lock);

	__atomic_add_fetch(&t->keys->refs, 1, __ATOMIC_RELAXED);
	return t->keys;
}

/* ---- one state of the files ---- */

struct pem {
	const char *file; /* borrowed */
	char *text;       /* owned */
	size_t bytes;
};

static void pem_clear(struct pem *p)
{
	if (p->text)
		gnutls_memset(p->text, 0, p->bytes);
	free(p->text);
}

static int pem_read(struct pem *p, int *ret_fd, char path[static TLS_PATH_MAX], char **ret_error)
{
	int rc = read_file(p->file, TLS_FILE_MAX, &p->text, &p->bytes);
	int fd AUTO_CLOSE = rc ? -1 : memfd_create("ibvmig-tls", MFD_CLOEXEC);

	if (!rc && (fd < 0 || write(fd, p->text, p->bytes) != (ssize_t)p->bytes))
		rc = -errno;
	if (rc) {
		*ret_error = strf("%s: %s (tls-cert, tls-key and tls-ca name such files, which "
				  "ibvmig-certs makes)",
				  p->file, strerror(-rc));
		return rc;
	}
	snprintf(path, TLS_PATH_MAX, "/proc/self/fd/%d", fd);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static gnutls_datum_t pem_datum(const struct pem *p)
{
	return (gnutls_datum_t){(unsigned char *)p->text, (unsigned)p->bytes};
}

/* When the last certificate of a file ends, or the first one of a chain: ours. */
static int last_end(const struct pem *p, bool chain, time_t *ret_end, char **ret_error)
{
	gnutls_datum_t data = pem_datum(p);
	gnutls_x509_crt_t list[CERTS_MAX];
	unsigned n = CERTS_MAX;
	int rc = gnutls_x509_crt_list_import(list, &n, &data, GNUTLS_X509_FMT_PEM, 0);
	time_t end = 0;

	if (rc < 0) {
		*ret_error = strf("%s holds no certificates in PEM: %s", p->file,
				  gnutls_strerror(rc));
		return -EINVAL;
	}
	for (unsigned i = 0; i < n; i++) {
		time_t t = gnutls_x509_crt_get_expiration_time(list[i]);

		if (t > end && (!chain || !i))
			end = t;
		gnutls_x509_crt_deinit(list[i]);
	}
	*ret_end = end;
	return 0;
}

static int fill(struct tls_keys *k, const struct pem pem[static TLS_FILES], char **ret_error)
{
	gnutls_datum_t cert = pem_datum(&pem[TLS_CERT]), key = pem_datum(&pem[TLS_KEY]),
		       ca = pem_datum(&pem[TLS_CA]);
	time_t ca_end;
	int rc;

	if ((rc = last_end(&pem[TLS_CERT], true, &k->not_after, ret_error)) ||
	    (rc = last_end(&pem[TLS_CA], false, &ca_end, ret_error)))
		return rc;
	if (ca_end < k->not_after)
		k->not_after = ca_end;
	if (gnutls_certificate_allocate_credentials(&k->cred))
		return -ENOMEM;
	rc = gnutls_certificate_set_x509_trust_mem(k->cred, &ca, GNUTLS_X509_FMT_PEM);
	if (rc >= 0)
		rc = gnutls_certificate_set_x509_key_mem(k->cred, &cert, &key, GNUTLS_X509_FMT_PEM);
	if (rc >= 0)
		return 0;
	*ret_error = strf("%s and its key %s: %s", pem[TLS_CERT].file, pem[TLS_KEY].file,
			  gnutls_strerror(rc));
	return -EINVAL;
}

static int keys_load(const struct tls_files *files, struct tls_keys **ret_keys, char **ret_error)
{
	struct tls_keys *k = calloc(1, sizeof *k);
	struct pem pem[] = {{.file = files->file[TLS_CERT]},
			    {.file = files->file[TLS_KEY]},
			    {.file = files->file[TLS_CA]}};
	int rc = 0;

	if (!k)
		return -ENOMEM;
	k->refs = 1;
	memset(k->fds, -1, sizeof k->fds);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(pem); i++)
		rc = pem_read(&pem[i], &k->fds[i], k->path[i], ret_error);
	if (!rc)
		rc = fill(k, pem, ret_error);
	for (size_t i = 0; i < ARRAY_SIZE(pem); i++)
		pem_clear(&pem[i]);
	if (rc)
		keys_free(k);
	else
		*ret_keys = k;
	return rc;
}

/* ---- the state that counts ---- */

int tls_reload(struct tls *t, char **ret_error)
{
	struct tls_keys *k = NULL;
	int rc;

	*ret_error = NULL;
	rc = keys_load(&t->files, &k, ret_error);
	if (rc)
		return rc;
	if (k->not_after <= time(NULL)) {
		tls_keys_put(k);
		*ret_error = strf("%s, or its CA %s, has expired", t->files.file[TLS_CERT],
				  t->files.file[TLS_CA]);
		return -EKEYEXPIRED;
	}
	pthread_mutex_lock(&t->lock);
	struct tls_keys *old = t->keys;
	t->keys = k;
	pthread_mutex_unlock(&t->lock);
	tls_keys_put(old);
	return 0;
}

int tls_new(const struct tls_files *files, struct tls **ret_tls, char **ret_error)
{
	struct tls *t = calloc(1, sizeof *t);
	int rc;

	*ret_error = NULL;
	if (!t)
		return -ENOMEM;
	t->files = *files;
	pthread_mutex_init(&t->lock, NULL);
	rc = keys_load(files, &t->keys, ret_error);
	if (rc) {
		free(t);
		return rc;
	}
	*ret_tls = t;
	return 0;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	tls_watch_end(t);
	tls_keys_put(t->keys);
	free(t);
}
