//! A value of a JSON file with the way to it.

use crate::schemes::fault::FileError;
use crate::schemes::value::Scalar;
use serde_json::Value;
use std::fmt::Display;

/// A value, and where it stands.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Node<'a> {
    /// All of a file.
    pub fn root(file: &'a str, value: &'a Value) -> Self {
        Self { file, path: String::new(), value }
    }

    /// Where it stands, for example `schemes[0].quotas`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// An error about this value.
    pub fn fault(&self, why: impl Display) -> FileError {
        let error = FileError::of(self.file, why);
        if self.path.is_empty() { error } else { error.at_key(&self.path) }
    }

    fn at(&self, key: &str, value: &'a Value) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { file: self.file, path, value }
    }

    /// The value of a key; `None` where it is missing or null.
    pub fn get(&self, key: &str) -> Result<Option<Self>, FileError> {
        let Value::Object(map) = self.value else {
            return Err(self.fault("this must be an object: {\"key\": value, ...}"));
        };
        Ok(map.get(key).filter(|v| !v.is_null()).map(|v| self.at(key, v)))
    }

    /// The elements of a list.
    pub fn items(&self) -> Result<Vec<Self>, FileError> {
        let Value::Array(list) = self.value else {
            return Err(self.fault("this must be a list: [...]"));
        };
        let one = |(i, value)| Self { file: self.file, path: format!("{}[{i}]", self.path), value };
        Ok(list.iter().enumerate().map(one).collect())
    }

    /// Whether it is a list without elements.
    pub fn is_empty(&self) -> bool {
        self.value.as_array().is_some_and(Vec::is_empty)
    }

    /// Refuses keys that are not among `known`: what they ask for would silently not be done.
    pub fn only(&self, known: &[&str]) -> Result<(), FileError> {
        let Value::Object(map) = self.value else { return Ok(()) };
        match map.iter().find(|(key, value)| !known.contains(&key.as_str()) && !is_nothing(value)) {
            None => Ok(()),
            Some((key, value)) => Err(self.at(key, value).fault("Isotherm does not know this key; remove it")),
        }
    }

    /// The value, read by `read`.
    pub fn read<T, E: Display>(&self, read: impl Fn(&Scalar) -> Result<T, E>) -> Result<T, FileError> {
        let scalar = match self.value {
            Value::String(text) => Scalar::Text(text.clone()),
            Value::Bool(b) => Scalar::Bool(*b),
            Value::Number(n) => n.as_u64().map_or_else(|| Scalar::Float(n.as_f64().unwrap_or(f64::NAN)), Scalar::Int),
            _ => return Err(self.fault("this must be a text or a number")),
        };
        read(&scalar).map_err(|why| self.fault(why))
    }

    /// The value of a key that may be missing.
    pub fn optional<T, E: Display>(
        &self,
        key: &str,
        read: impl Fn(&Scalar) -> Result<T, E>,
    ) -> Result<Option<T>, FileError> {
        self.get(key)?.map(|node| node.read(read)).transpose()
    }
}

/// Whether a value asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}
