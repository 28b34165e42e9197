package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/outbox"
)

func httpStatus(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	if err := parameters(r, nil); err != nil {
		return nil, err
	}
	return readReport(ctx, store)
}

func httpVerify(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	if err := parameters(r, nil); err != nil {
		return nil, err
	}
	return verifyAll(ctx, store)
}

func httpDoctor(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	if err := parameters(r, nil); err != nil {
		return nil, err
	}
	return readDoctor(ctx, store)
}

func httpList(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	l := listing{limit: defaultLimit}
	limit, after := uint64(defaultLimit), uint64(0)
	err := parameters(r, map[string]func(string) error{
		"state":    func(v string) error { l.states = strings.Split(v, ","); return nil },
		"target":   func(v string) error { l.filter.Target = v; return nil },
		"queue_id": func(v string) error { l.filter.QueueID = v; return nil },
		"task_id":  func(v string) error { l.filter.TaskID = v; return nil },
		"key":      func(v string) error { l.filter.Key = v; return nil },
		"unknown":  flagParameter(&l.filter.Unknown),
		"limit":    numberParameter(&limit),
		"after":    numberParameter(&after),
	})
	if err != nil {
		return nil, err
	}
	l.limit, l.after = int(min(limit, math.MaxInt32)), int64(min(after, math.MaxInt64))
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.read(ctx, store)
}

func httpShow(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	seq, err := strconv.ParseInt(r.PathValue("row"), 10, 64)
	if err != nil || seq < 1 {
		return nil, &orbit.InvalidArgumentError{Field: "row", Rule: "must be a number from the list of rows"}
	}
	var request bool
	if err := parameters(r, map[string]func(string) error{"request": flagParameter(&request)}); err != nil {
		return nil, err
	}
	return readHistory(ctx, store, seq, request)
}

// An actBody is what every act has: who, why, and whether only to try.
type actBody struct {
	Operator string `json:"operator" strict:"required"`
	Reason   string `json:"reason" strict:"required"`
	DryRun   bool   `json:"dry_run"`
}

func (b actBody) act() (outbox.Act, error) {
	act := outbox.Act{Operator: b.Operator, Reason: b.Reason, DryRun: b.DryRun}
	return act, checkAct(act)
}

type rowsBody struct {
	Rows     []uint64 `json:"rows"`
	All      bool     `json:"all"`
	Target   string   `json:"target"`
	QueueID  string   `json:"queue_id"`
	Operator string   `json:"operator" strict:"required"`
	Reason   string   `json:"reason" strict:"required"`
	DryRun   bool     `json:"dry_run"`
}

type requeueBody struct {
	Rows      []uint64 `json:"rows"`
	All       bool     `json:"all"`
	Target    string   `json:"target"`
	QueueID   string   `json:"queue_id"`
	Duplicate bool     `json:"accept_duplicate_risk"`
	Late      bool     `json:"accept_late"`
	Operator  string   `json:"operator" strict:"required"`
	Reason    string   `json:"reason" strict:"required"`
	DryRun    bool     `json:"dry_run"`
}

func httpRequeue(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	var b requeueBody
	if err := readBody(r, &b); err != nil {
		return nil, err
	}
	accepted := risky{duplicate: b.Duplicate, late: b.Late}
	rows := rowsBody{b.Rows, b.All, b.Target, b.QueueID, b.Operator, b.Reason, b.DryRun}
	return rows.perform(ctx, store, requeueRows(accepted.risks))
}

func httpDiscard(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	var b rowsBody
	if err := readBody(r, &b); err != nil {
		return nil, err
	}
	return b.perform(ctx, store, discardRows())
}

// perform holds the body to the rules of the command and runs it.
func (b *rowsBody) perform(ctx context.Context, store *outbox.Store, a rowsAct) (any, error) {
	switch {
	case b.All != (len(b.Rows) == 0):
		return nil, &orbit.InvalidArgumentError{Field: "rows", Rule: "must name rows, or all and target be given instead"}
	case b.All != (b.Target != ""):
		return nil, &orbit.InvalidArgumentError{Field: "target", Rule: "goes with all, and all with it"}
	case b.QueueID != "" && !b.All:
		return nil, &orbit.InvalidArgumentError{Field: "queue_id", Rule: "goes with all and target"}
	case len(b.Rows) > outbox.MaxRows:
		return nil, &orbit.InvalidArgumentError{Field: "rows", Rule: "must name at most 1000 rows"}
	}
	for _, n := range b.Rows {
		if n < 1 || n > math.MaxInt64 {
			return nil, &orbit.InvalidArgumentError{Field: "rows", Rule: "must be numbers from the list of rows"}
		}
		a.rows = append(a.rows, int64(n))
	}
	var err error
	if a.act, err = (actBody{b.Operator, b.Reason, b.DryRun}).act(); err != nil {
		return nil, err
	}
	a.all, a.scope = b.All, scope{b.Target, b.QueueID}
	d, err := a.perform(ctx, store)
	return d, err
}

type holdBody struct {
	All      bool   `json:"all"`
	Target   string `json:"target"`
	QueueID  string `json:"queue_id"`
	Operator string `json:"operator" strict:"required"`
	Reason   string `json:"reason" strict:"required"`
	DryRun   bool   `json:"dry_run"`
}

func httpHold(h holdAct) operation {
	return func(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
		var b holdBody
		if err := readBody(r, &b); err != nil {
			return nil, err
		}
		if b.All == (b.Target != "") {
			return nil, &orbit.InvalidArgumentError{Field: "target", Rule: "must name a target, or all be true"}
		}
		if b.All && b.QueueID != "" {
			return nil, &orbit.InvalidArgumentError{Field: "queue_id", Rule: "goes with a target"}
		}
		act, err := (actBody{b.Operator, b.Reason, b.DryRun}).act()
		if err != nil {
			return nil, err
		}
		return h.perform(ctx, store, scope{b.Target, b.QueueID}, act)
	}
}

type purgeBody struct {
	OlderThan string `json:"older_than" strict:"required"`
	Operator  string `json:"operator" strict:"required"`
	Reason    string `json:"reason" strict:"required"`
	DryRun    bool   `json:"dry_run"`
}

func httpPurge(ctx context.Context, store *outbox.Store, r *http.Request) (any, error) {
	var b purgeBody
	if err := readBody(r, &b); err != nil {
		return nil, err
	}
	age, err := parseAge(b.OlderThan)
	if err != nil {
		return nil, err
	}
	act, err := (actBody{b.Operator, b.Reason, b.DryRun}).act()
	if err != nil {
		return nil, err
	}
	d, err := purge(ctx, store, age, act)
	return d, err
}

// errBody reports a body that is longer than any act needs.
var errBody = errors.New("body: must be at most 65536 bytes")

const maxBody = 64 << 10

// readBody reads the JSON of an act strictly: what is unknown or doubled is refused.
func readBody(r *http.Request, to any) error {
	if err := parameters(r, nil); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return &orbit.InvalidArgumentError{Field: "body", Rule: "could not be read to its end"}
	case len(text) > maxBody:
		return errBody
	}
	return strictjson.Decode(text, to)
}

// parameters reads the query of a URL strictly: each known parameter at most once.
func parameters(r *http.Request, known map[string]func(string) error) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &orbit.InvalidArgumentError{Field: "query", Rule: "must be a query of a URL"}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read := known[name]
		switch {
		case read == nil:
			return &orbit.InvalidArgumentError{Field: name, Rule: "is unknown"}
		case len(values[name]) != 1 || values[name][0] == "":
			return &orbit.InvalidArgumentError{Field: name, Rule: "must be given once, with a value"}
		}
		if err := read(values[name][0]); err != nil {
			return &orbit.InvalidArgumentError{Field: name, Rule: err.Error()}
		}
	}
	return nil
}

func flagParameter(to *bool) func(string) error {
	return func(v string) error {
		*to = v == "true"
		if v != "true" && v != "false" {
			return errors.New("must be true or false")
		}
		return nil
	}
}

func numberParameter(to *uint64) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseUint(v, 10, 63); err != nil {
			return errors.New("must be a number")
		}
		return nil
	}
}
