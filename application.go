package orbit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

const applicationPath = "/v1/application"

// An Application is the one that the credential's namespace belongs to. Its limits are
// shared by all its namespaces.
type Application struct {
	ID                string
	Name              string
	State             string  // "ACTIVE" or "DISABLED"
	MaxUnfinished     uint64  // most unfinished tasks, those in review included; 0 means no limit
	MaxActiveAttempts uint64  // most attempts at one time; 0 means no limit
	DispatchStopped   bool    // nothing is dispatched; what runs goes on
	Unfinished        *uint64 // nil while MaxUnfinished is 0: it is not counted then
	ActiveAttempts    uint64
	Revision          uint64
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// AppendJSON appends the contract form of a.
func (a *Application) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("id", a.ID)
	o.string("name", a.Name)
	o.string("state", a.State)
	o.uint("max_unfinished", a.MaxUnfinished)
	o.uint("max_active_attempts", a.MaxActiveAttempts)
	o.bool("dispatch_stopped", a.DispatchStopped)
	o.optionalCount("unfinished", a.Unfinished)
	o.uint("active_attempts", a.ActiveAttempts)
	o.decimal("revision", a.Revision)
	o.time("created_at", a.CreatedAt)
	o.time("updated_at", a.UpdatedAt)
	return o.end()
}

// MarshalJSON returns the contract form.
func (a Application) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

// UnmarshalJSON reads the contract form. Unknown members are ignored.
func (a *Application) UnmarshalJSON(data []byte) error {
	var w struct {
		ID                string      `json:"id"`
		Name              string      `json:"name"`
		State             string      `json:"state"`
		MaxUnfinished     uint64      `json:"max_unfinished"`
		MaxActiveAttempts uint64      `json:"max_active_attempts"`
		DispatchStopped   bool        `json:"dispatch_stopped"`
		Unfinished        *uint64     `json:"unfinished"`
		ActiveAttempts    uint64      `json:"active_attempts"`
		Revision          decimalUint `json:"revision"`
		CreatedAt         wireTime    `json:"created_at"`
		UpdatedAt         wireTime    `json:"updated_at"`
	}
	if err := jsonv2.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("orbit: read application: %w", err)
	}
	*a = Application{
		ID: w.ID, Name: w.Name, State: w.State, MaxUnfinished: w.MaxUnfinished, MaxActiveAttempts: w.MaxActiveAttempts,
		DispatchStopped: w.DispatchStopped, Unfinished: w.Unfinished, ActiveAttempts: w.ActiveAttempts,
		Revision: uint64(w.Revision), CreatedAt: time.Time(w.CreatedAt), UpdatedAt: time.Time(w.UpdatedAt),
	}
	return nil
}

// GetApplication reads the credential's application.
func (c *Client) GetApplication(ctx context.Context) (Application, error) {
	var a Application
	return a, c.get(ctx, "read application", applicationPath, maxSingleAnswer, &a)
}

// UpdateApplicationRequest changes an application. What is nil stays as it is; something
// must be set.
type UpdateApplicationRequest struct {
	ExpectedRevision  uint64  // revision that the caller has seen; not zero
	MaxUnfinished     *uint64 // 0 means no limit; tasks over a lower one stay
	MaxActiveAttempts *uint64 // 0 means no limit; attempts over a lower one go on
	DispatchStopped   *bool
}

type wireUpdateApplication struct {
	ExpectedRevision  decimalUint `json:"expected_revision" strict:"required"`
	MaxUnfinished     *uint64     `json:"max_unfinished"`
	MaxActiveAttempts *uint64     `json:"max_active_attempts"`
	DispatchStopped   *bool       `json:"dispatch_stopped"`
}

// ParseUpdateApplication reads the body of PATCH /v1/application strictly and returns the
// digest of its content. Its errors are [*InvalidArgumentError].
func ParseUpdateApplication(body []byte) (UpdateApplicationRequest, Digest, error) {
	var w wireUpdateApplication
	if err := decode(body, &w); err != nil {
		return UpdateApplicationRequest{}, Digest{}, err
	}
	r := UpdateApplicationRequest{uint64(w.ExpectedRevision), w.MaxUnfinished, w.MaxActiveAttempts, w.DispatchStopped}
	if err := r.validate(); err != nil {
		return UpdateApplicationRequest{}, Digest{}, err
	}
	return r, digestOf(r.append(nil, true)), nil
}

func (r UpdateApplicationRequest) validate() error {
	if err := validRevision(r.ExpectedRevision); err != nil {
		return err
	}
	if r.MaxUnfinished == nil && r.MaxActiveAttempts == nil && r.DispatchStopped == nil {
		return invalid("body", "must set max_unfinished, max_active_attempts or dispatch_stopped")
	}
	if err := validOptionalLimit("max_unfinished", r.MaxUnfinished); err != nil {
		return err
	}
	return validOptionalLimit("max_active_attempts", r.MaxActiveAttempts)
}

// append encodes a valid request, its members in the order of the canonical form.
func (r UpdateApplicationRequest) append(dst []byte, canonical bool) []byte {
	o := object{dst: append(dst, '{')}
	if r.DispatchStopped != nil {
		o.bool("dispatch_stopped", *r.DispatchStopped)
	}
	o.decimal("expected_revision", r.ExpectedRevision)
	o.limit("max_active_attempts", r.MaxActiveAttempts, canonical)
	o.limit("max_unfinished", r.MaxUnfinished, canonical)
	return o.end()
}

// UpdateApplication changes the credential's application, once, under key. A stale
// revision gives an [*APIError] with CodeStateConflict; other errors are as for
// [Client.SubmitTask].
func (c *Client) UpdateApplication(ctx context.Context, key string, r UpdateApplicationRequest) (Application, error) {
	const act = "update application"
	if err := r.validate(); err != nil {
		return Application{}, err
	}
	answer, data, err := c.run(ctx, command{
		act: act, method: http.MethodPatch, path: applicationPath, key: key,
		body: r.append(nil, false), success: []int{http.StatusOK},
	})
	if err != nil {
		return Application{}, err
	}
	var a Application
	if err := a.UnmarshalJSON(data); err != nil || !ValidID(a.ID) {
		return Application{}, &UnknownOutcomeError{Act: act, Status: answer.status, Err: errors.New("data of the answer is not an application")}
	}
	return a, nil
}
