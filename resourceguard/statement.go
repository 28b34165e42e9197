package resourceguard

// Every statement names its row by the whole primary key. Keys are bound as bytes and
// tokens as unsigned integers: text would be compared by a collation or as a double.
const (
	insertKey = `
		INSERT INTO orbit_guard_key (namespace, resource_key, highest, attempt, raised_at)
		VALUES (?, ?, ?, ?, 0)`

	readKey = `
		SELECT highest, attempt
		FROM orbit_guard_key
		WHERE namespace = ? AND resource_key = ?`

	raiseKey = `
		UPDATE orbit_guard_key
		SET highest = ?, attempt = ?, raised_at = `

	whereKey = `
		WHERE namespace = ? AND resource_key = ?`

	insertOperation = `
		INSERT INTO orbit_guard_operation (namespace, resource_key, operation, digest, token, attempt, applied_at)
		VALUES (?, ?, ?, ?, ?, ?, `

	readOperation = `
		SELECT digest, token, attempt, receipt, applied_at
		FROM orbit_guard_operation
		WHERE namespace = ? AND resource_key = ? AND operation = ?`

	storeReceipt = `
		UPDATE orbit_guard_operation
		SET receipt = ?
		WHERE namespace = ? AND resource_key = ? AND operation = ?`

	deleteOperation = `
		DELETE FROM orbit_guard_operation
		WHERE namespace = ? AND resource_key = ? AND operation = ?`

	deleteOld = `
		DELETE FROM orbit_guard_operation
		WHERE `

	oldest = `applied_at < ? ORDER BY applied_at LIMIT ?`

	// A DELETE has no LIMIT in standard SQL; MySQL, which has it, allows none in a
	// subquery.
	amongOldest = `(namespace, resource_key, operation) IN (
			SELECT namespace, resource_key, operation
			FROM orbit_guard_operation
			WHERE ` + oldest + `)`
)

// statements are the texts for one engine.
type statements struct {
	makeKey         string // makes the key's row or leaves it as it is
	lockKey         string
	raiseKey        string
	insertOperation string
	repeated        string // reads an operation after a duplicate
	readOperation   string
	storeReceipt    string
	deleteOperation string
	deleteOld       string
}

func statementsFor(d *Dialect) statements {
	s := statements{
		makeKey:         insertKey + d.OnConflict([]string{"namespace", "resource_key"}),
		lockKey:         readKey + d.ForUpdate,
		raiseKey:        raiseKey + d.Clock + whereKey,
		insertOperation: insertOperation + d.Clock + ")",
		// A snapshot would not see a row that was committed after it was taken.
		repeated:        readOperation + d.Share,
		readOperation:   readOperation,
		storeReceipt:    storeReceipt,
		deleteOperation: deleteOperation,
		deleteOld:       deleteOld + oldest,
	}
	if d.Returning { // instead of an error, which would end a transaction of PostgreSQL
		s.insertOperation += d.OnConflict([]string{"namespace", "resource_key", "operation"}) + " RETURNING 1"
	}
	if d != MySQL {
		s.deleteOld = deleteOld + amongOldest
	}
	for _, text := range []*string{
		&s.makeKey, &s.lockKey, &s.raiseKey, &s.insertOperation, &s.repeated,
		&s.readOperation, &s.storeReceipt, &s.deleteOperation, &s.deleteOld,
	} {
		*text = d.Bind(*text)
	}
	return s
}
