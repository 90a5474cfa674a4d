/* SPDX-License-Identifier: GPL-2.0-or-later */
/* libvirt's qemu hook: passes a migration to this host, a restore of a saved VM, or any start, on
 * to ibvmigd and waits for its word.
 *
 * libvirtd runs it as HOOK VM OPERATION SUB-OPERATION EXTRA with the domain XML on stdin. What is
 * on stdout replaces it, nothing leaves it as it is; a failure refuses the migration, and libvirt
 * shows our stderr. */
#include "common/http/client.h"
#include "common/json.h"
#include "common/util.h"

#include <errno.h>
#include <string.h>

#define SOCKET_DEFAULT    "unix:/run/ibvmig/ibvmigd.sock"
#define DEADLINE_MS       15000
#define START_DEADLINE_MS 3000
#define XML_MAX           (900u << 10)
#define METADATA          "urn:ibvmig:1"

static char *read_all(void)
{
	char *xml = malloc(XML_MAX + 1);
	size_t n = 0, got;

	if (!xml)
		return NULL;
	while (n < XML_MAX && (got = fread(xml + n, 1, XML_MAX - n, stdin)) > 0)
		n += got;
	xml[n] = '\0';
	return xml;
}

/* Gives libvirt the XML to start the destination's QEMU with; nothing: as it was. */
static int give_xml(const char *xml)
{
	return fputs(xml, stdout) < 0 || fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	const char *socket = getenv("IBVMIG_SOCKET");
	struct json_object *body AUTO_JSON = NULL, *answer AUTO_JSON = NULL;
	char error[HTTP_ERROR_MAX];
	char *xml AUTO_FREE = NULL;

	bool starts = argc >= 4 && !strcmp(argv[2], "prepare");

	if (argc < 4 || (!starts && strcmp(argv[2], "migrate") && strcmp(argv[2], "restore")) ||
	    strcmp(argv[3], "begin"))
		return 0;
	xml = read_all();
	/* A VM that does not ask for a VF must not depend on our daemon. */
	if (!xml || !strstr(xml, METADATA))
		return 0;
	http_client_init();
	body = json_object_new_object();
	json_set_str(body, "name", argv[1]);
	json_set_str(body, "op", argv[2]);
	json_set_str(body, "sub_op", argv[3]);
	json_set_str(body, "xml", xml);
	int rc = http_call(socket ? socket : SOCKET_DEFAULT, "POST", "/v1/hook", body,
			   starts ? START_DEADLINE_MS : DEADLINE_MS, &answer, error);
	if (rc && rc != -EREMOTEIO && starts)
		return 0; /* the VM gets its VF when the daemon is back */
	if (!rc)
		return give_xml(json_opt_str(answer, "xml", ""));
	if (rc == -EREMOTEIO)
		fprintf(stderr, "%s\n", error);
	else
		fprintf(stderr,
			"ibvmig: VM %s needs a VF here, but ibvmigd of this host does not answer "
			"(%s): start it with systemctl start ibvmigd\n",
			argv[1], error);
	return 1;
}
