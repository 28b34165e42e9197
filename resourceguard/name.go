package resourceguard

// ValidateName holds text to the rules of the texts of a [Write]. field names it in the
// error, which is an [*InvalidError].
func ValidateName(field, text string) error { return validName(field, text) }
