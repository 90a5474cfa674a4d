/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The readers and writers of a domain's XML share these. */
#ifndef IBVMIG_DAEMON_LIBVIRT_DOMAIN_XML_H
#define IBVMIG_DAEMON_LIBVIRT_DOMAIN_XML_H

#include <libxml/tree.h>
#include <stdbool.h>

#define AUTO_DOC __attribute__((cleanup(domain_xml_free)))

void domain_xml_free(xmlDocPtr *doc);
/* True if node is an element of that name, of any namespace. */
bool domain_xml_is(xmlNodePtr node, const char *name);
/* The first element of that name in parent, or NULL, also without a parent. */
xmlNodePtr domain_xml_child(xmlNodePtr parent, const char *name);
/* The document as text, which the caller frees, or NULL. */
char *domain_xml_print(xmlDocPtr doc);

#endif
