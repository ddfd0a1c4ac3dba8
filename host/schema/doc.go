// Package schema checks JSON values against JSON Schemas, and tells every fault
// at once, each with the path of its field, in the words of somebody who edits
// that field.
//
// Schemas are read as draft 2020-12, whatever their $schema says. What an older
// draft meant otherwise, and the few keywords that are not supported
// ($dynamicRef, unevaluatedProperties, unevaluatedItems, references to other
// documents), is refused when the schema is parsed; nothing is left unchecked in
// silence. As in the draft, format only describes. Patterns are Go's regular
// expressions.
//
// Schemas come from plugins that others wrote: none can send the checker in
// circles. A program pays nothing for this package before it parses a schema.
package schema
