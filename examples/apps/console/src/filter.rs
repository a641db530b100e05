//! The filter, which is a text that selects processes. Each word is a part of the name, or has the form `type=TEXT` or
//! `state=STATE`.

use serde_json::Value;

/// Returns the fields that a filter adds to the request `processes`.
///
/// # Errors
/// Returns an explanation if the text has a word with an unknown key.
pub fn parse(text: &str) -> Result<Vec<(&'static str, Value)>, String> {
    let mut fields = Vec::new();
    for word in text.split_whitespace() {
        let (name, value) = match word.split_once('=') {
            None => ("name", word.to_owned()),
            Some(("name", value)) => ("name", value.to_owned()),
            Some(("type", value)) => ("type", value.to_owned()),
            Some(("state", value)) => ("state", capitalized(value)),
            Some((key, _)) => return Err(format!("{key} is none of name, type, state")),
        };
        if fields.iter().any(|(present, _)| *present == name) {
            return Err(format!("{name} occurs twice"));
        }
        fields.push((name, value.into()));
    }
    Ok(fields)
}

/// Changes the first letter to a capital letter, because the names of the states begin with capital letters.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_keys_become_fields() {
        let fields =
            |text| parse(text).map(|fields| fields.into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>());
        assert_eq!(fields(""), Ok(vec![]));
        assert_eq!(fields("  cache "), Ok(vec!["name=\"cache\"".into()]));
        assert_eq!(
            fields("type=app::Cache state=blocked"),
            Ok(vec!["type=\"app::Cache\"".into(), "state=\"Blocked\"".into()])
        );
        assert_eq!(fields("a b"), Err("name occurs twice".into()));
        assert_eq!(fields("colour=red"), Err("colour is none of name, type, state".into()));
    }
}
