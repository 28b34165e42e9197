package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Permissions of a credential (REF-AUTH-002).
const (
	TasksSubmit      = "tasks:submit"
	TasksRead        = "tasks:read"
	TasksCancel      = "tasks:cancel"
	QueuesManage     = "queues:manage"
	WorkersConnect   = "workers:connect"
	WorkersConsume   = "workers:consume"
	SchedulesManage  = "schedules:manage"
	SchedulesRead    = "schedules:read"
	ReviewsDecide    = "reviews:decide"
	ApplicationsRead = "applications:read"
)

var known = []string{
	ApplicationsRead, QueuesManage, ReviewsDecide, SchedulesManage, SchedulesRead,
	TasksCancel, TasksRead, TasksSubmit, WorkersConnect, WorkersConsume,
}

// KnownPermissions returns every permission there is, sorted.
func KnownPermissions() []string { return slices.Clone(known) }

// Permissions are what a credential may do, sorted, each once.
type Permissions []string

// NewPermissions sorts names and drops repeats. It refuses a name that is no
// permission, and an empty list, which would make a credential good for nothing.
func NewPermissions(names []string) (Permissions, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("at least one permission is required")
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q is not a permission; known are %s", name, strings.Join(known, ", "))
		}
	}
	p := Permissions(slices.Clone(names))
	slices.Sort(p)
	return slices.Compact(p), nil
}

// Column returns the stored form.
func (p Permissions) Column() []byte { return []byte(strings.Join(p, ",")) }

// Has reports whether p contains permission.
func (p Permissions) Has(permission string) bool { return slices.Contains(p, permission) }

// parseColumn reads the stored form. A name that this release does not know, stored by
// a later one, gives nothing here.
func parseColumn(column []byte) Permissions {
	if len(column) == 0 {
		return nil
	}
	return Permissions(strings.Split(string(column), ","))
}
