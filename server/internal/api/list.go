package api

import (
	"context"
	"encoding/binary"
	"net/http"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/query"
)

// A paging is which page of a list is asked for.
type paging struct {
	limit    int
	position []byte // after which the page begins; nil for the first
	seal     cursorSeal
}

// paging reads limit and cursor of a list that is asked for with filters.
func (c *call) paging(from parameters, kind cursorKind, filters []byte) (p paging, err error) {
	p.seal = cursorSeal{key: c.principal.CursorKey, kind: kind, filters: filters}
	if p.limit, err = from.limit(); err != nil {
		return p, err
	}
	if text, present := from["cursor"]; present {
		p.position, err = p.seal.open(text)
	}
	return p, err
}

// A list is a page that is being written.
type list struct {
	items []byte
	next  []byte // the position after which the next page begins; nil on the last page
}

// item appends one more.
func (l *list) item(appendJSON func([]byte) []byte) {
	if len(l.items) > 0 {
		l.items = append(l.items, ',')
	}
	l.items = appendJSON(l.items)
}

// respondList answers with a page (LIST-014, LIST-015).
func (c *call) respondList(l list, p paging) error {
	data := append(append([]byte(`{"items":[`), l.items...), ']')
	if l.next != nil {
		data = append(append(append(data, `,"next_cursor":"`...), p.seal.seal(l.next)...), '"')
	}
	return c.respond(http.StatusOK, append(data, '}'))
}

// listOfTask serves a list of parts of the task that the path names.
func (c *call) listOfTask(kind cursorKind, read func(context.Context, sqldb.ID, paging) (list, error)) error {
	if err := c.require(auth.TasksRead); err != nil {
		return err
	}
	parameters, err := c.query("limit", "cursor")
	if err != nil {
		return err
	}
	id, err := sqldb.ParseID(c.subject)
	if err != nil {
		return errNoTask // AMB-071
	}
	p, err := c.paging(parameters, kind, id[:])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	l, err := read(ctx, id, p)
	if err != nil {
		return orNotFound(err, errNoTask)
	}
	return c.respondList(l, p)
}

// listTasks serves GET /v1/tasks: summaries of the tasks of a queue, newest first.
func (c *call) listTasks() error {
	if err := c.require(auth.TasksRead); err != nil {
		return err
	}
	parameters, err := c.query(taskListParameters...)
	if err != nil {
		return err
	}
	filter, err := parameters.taskFilter()
	if err != nil {
		return err
	}
	p, err := c.paging(parameters, cursorTasks, boundFilters(filter))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	if err := c.checkQueues(ctx, []accept.Item{{Queue: filter.Queue}})[0]; err != nil {
		return err
	}
	page, err := c.reader().Tasks(ctx, filter, p.place(), p.limit)
	if err != nil {
		return err
	}
	l := list{next: appendPlace(page.Next)}
	for i := range page.Tasks {
		l.item(page.Tasks[i].AppendSummaryJSON)
	}
	return c.respondList(l, p)
}

// boundFilters is what a cursor of the list of tasks is bound to: the values of the
// filters, instants as such and not as they were spelled (AMB-063, AMB-070).
func boundFilters(f query.TaskFilter) []byte {
	b := append(f.Queue[:], byte(f.State))
	for _, bound := range []*int64{f.CreatedFrom, f.CreatedBefore} {
		if bound == nil {
			b = append(b, 0)
		} else {
			b = binary.BigEndian.AppendUint64(append(b, 1), uint64(*bound))
		}
	}
	return append(b, f.BusinessKey...)
}
