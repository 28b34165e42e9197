package server

import (
	"context"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/admin/doctor"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// An Operator is somebody who works on a server's database by hand: its methods list and
// change credentials, queues, applications and tasks. Each change is audited with the
// operator's name.
type Operator = admin.Operator

// What an Operator takes and returns.
type (
	// A Place names a queue, or a namespace, by the names of people.
	Place = admin.Place
	// A CredentialView is what may be told of a credential.
	CredentialView = admin.CredentialView
	// A QueueChange says what of a queue is to be another.
	QueueChange = admin.QueueChange
	// An ApplicationChange says what of an application is to be another.
	ApplicationChange = admin.ApplicationChange
	// A TaskFilter says which tasks of a queue are wanted.
	TaskFilter = admin.TaskFilter
	// An Event is one line of the history of a task.
	Event = admin.Event
	// An AuditFilter says which rows of the audit are wanted.
	AuditFilter = admin.AuditFilter
	// An AuditEntry is one row of the audit.
	AuditEntry = admin.AuditEntry
	// A QueuedTask is the summary of a task, with the names of where it lies.
	QueuedTask = admin.QueuedTask
	// TaskDetails are what an operator may know of a task besides what its readers see.
	TaskDetails = admin.TaskDetails
	// A Decision ends the review of a task.
	Decision = admin.Decision
	// A KeyFilter says which resource keys are wanted.
	KeyFilter = admin.KeyFilter
	// A KeyView is a resource key: who holds it, and since when.
	KeyView = admin.KeyView
	// A TokenRaise asks that no resource key gives a token again that it may have given.
	TokenRaise = admin.TokenRaise
	// TokensRaised tells what a raise of tokens did.
	TokensRaised = admin.TokensRaised
	// A ConflictError reports that the state of a thing does not allow a command.
	ConflictError = admin.ConflictError
)

// MaxTokenRaise is the highest version to which tokens can be raised, 2^64-3 (TOK-018).
const MaxTokenRaise = admin.MaxRaise

// NewOperator returns an operator on db. actor is who it is, for the audit, at most 128
// bytes.
func NewOperator(db *sqldb.DB, actor string) *Operator { return admin.NewOperator(db, actor) }

// ParseKeyDigest reads the digest of a [KeyView].
func ParseKeyDigest(text string) ([]byte, error) { return admin.ParseKeyDigest(text) }

// A Finding is what an examination of a database says about one thing.
type Finding = doctor.Finding

// Levels of a finding.
const (
	FindingOK      = doctor.OK
	FindingWarning = doctor.Warning
	FindingFailure = doctor.Failure
	FindingSkipped = doctor.Skipped
)

// Examine looks at a server's database and says what is wrong with it and what to do. It
// changes nothing. deep adds checks that read every row.
func Examine(ctx context.Context, db *sqldb.DB, deep bool) []Finding {
	return doctor.Examine(ctx, db, doctor.Options{Deep: deep, MinSchema: minSchema, MaxSchema: maxSchema})
}

// Verify holds all rows of a server's database against each other, as of one moment, and
// returns a line for each contradiction, at most 20 of a kind. It changes nothing, reads
// every row, and takes minutes where there are millions of tasks.
func Verify(ctx context.Context, db *sqldb.DB) ([]string, error) { return dispatch.Verify(ctx, db) }
