package accept

import "github.com/orbitkit/orbit/internal/sqldb"

// reasonRetry is the reason in the first event of a task that repeats another.
const reasonRetry = "manual_retry"

// retryOf is the column that links a manual retry to its task, zero (NULL) for a submit.
func (i *Item) retryOf() sqldb.ID {
	if i.Retry == nil {
		return sqldb.ID{}
	}
	return i.Retry.Of
}

// operationRoot stays the same over all retries of an operation. A submit is its own root
// (NULL).
func (i *Item) operationRoot() sqldb.ID {
	if i.Retry == nil {
		return sqldb.ID{}
	}
	return i.Retry.Root
}

// reason is that of the event which accepts the task.
func (i *Item) reason() string {
	if i.Retry == nil {
		return ""
	}
	return reasonRetry
}

// audit tells what the audit calls the item, and the note of the person behind it.
func (i *Item) audit() (action, note []byte) {
	if i.Retry == nil {
		return []byte(actionSubmit), []byte{}
	}
	return []byte(actionRetry), []byte(i.Retry.Reason)
}

// auditedCredential is zero (NULL) if a person acted by hand: nobody used the credential.
func (i *Item) auditedCredential() sqldb.ID {
	if i.Actor != "" {
		return sqldb.ID{}
	}
	return i.Credential
}
