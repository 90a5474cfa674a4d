/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A doubly linked list through the elements, as in the kernel's list.h. */
#ifndef IBVMIG_GUEST_AGENT_PROTO_LIST_H
#define IBVMIG_GUEST_AGENT_PROTO_LIST_H

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(l)                                                                               \
	{                                                                                          \
		&(l), &(l)                                                                         \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline void list_add(struct list *head, struct list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* Allowed on one that is in no list, if it was initialised. */
static inline void list_del(struct list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

#define list_entry(l, type, member) container_of(l, type, member)
/* The element may not be removed inside. */
#define list_for_each(e, head, member)                                                             \
	for ((e) = list_entry((head)->next, __typeof__(*(e)), member); &(e)->member != (head);     \
	     (e) = list_entry((e)->member.next, __typeof__(*(e)), member))

#endif
