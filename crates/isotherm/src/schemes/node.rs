//! A value of a scheme file with the way to it, whatever the file's notation.

use super::fault::FileError;
use super::value::Scalar;
use std::fmt::Display;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Toml,
    Json,
}

/// What a file or a part of it holds.
#[derive(Debug)]
pub struct Tree {
    content: Content,
    /// The line, from 1, where it is known.
    line: Option<usize>,
}

#[derive(Debug)]
enum Content {
    Scalar(Scalar),
    List(Vec<Tree>),
    Table(Vec<(String, Tree)>),
}

impl Tree {
    /// Reads a text of TOML.
    pub fn of_toml(name: &str, text: &str) -> Result<Self, FileError> {
        let ends: Vec<usize> = text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(at, _)| at).collect();
        let line_of = |at: usize| ends.partition_point(|&end| end < at) + 1;
        let root = DeTable::parse(text).map_err(|e| {
            let line = e.span().map(|span| line_of(span.start));
            // The line as it is written names the key.
            let written = line.and_then(|n| text.lines().nth(n - 1)).map(str::trim).filter(|t| !t.is_empty());
            let why = match written {
                Some(written) => format!("{} (in '{written}')", e.message().trim()),
                None => e.message().trim().to_owned(),
            };
            FileError::of(name, why).at_line(line)
        })?;
        Ok(Self { content: Content::of_table(root.get_ref(), &line_of), line: Some(1) })
    }

    /// Reads a text of JSON.
    pub fn of_json(name: &str, text: &str) -> Result<Self, FileError> {
        let value: serde_json::Value = serde_json::from_str(text)
            .map_err(|e| FileError::of(name, format!("not JSON: {e}")).at_line(Some(e.line())))?;
        Ok(Self::from(&value))
    }

    /// Its root, in a file that errors call `file`.
    pub fn root<'a>(&'a self, file: &'a str) -> Node<'a> {
        let notation = if self.line.is_some() { Notation::Toml } else { Notation::Json };
        Node { file, path: String::new(), notation, tree: self }
    }
}

impl Content {
    fn of_table(table: &DeTable, line_of: &dyn Fn(usize) -> usize) -> Self {
        let items = table.iter().map(|(key, value)| (key.get_ref().to_string(), Self::of_toml(value, line_of)));
        Self::Table(items.collect())
    }

    fn of_toml(value: &Spanned<DeValue>, line_of: &dyn Fn(usize) -> usize) -> Tree {
        let content = match value.get_ref() {
            DeValue::Table(table) => Self::of_table(table, line_of),
            DeValue::Array(list) => Self::List(list.iter().map(|v| Self::of_toml(v, line_of)).collect()),
            DeValue::String(text) => Self::Scalar(text.as_ref().into()),
            DeValue::Boolean(b) => Self::Scalar(Scalar::Bool(*b)),
            DeValue::Integer(n) => Self::Scalar(match u64::from_str_radix(n.as_str(), n.radix()) {
                Ok(n) => Scalar::Int(n),
                Err(_) => Scalar::Float(n.as_str().parse().unwrap_or(f64::NAN)),
            }),
            DeValue::Float(x) => Self::Scalar(Scalar::Float(x.as_str().parse().unwrap_or(f64::NAN))),
            DeValue::Datetime(time) => Self::Scalar(Scalar::Text(time.to_string())),
        };
        Tree { content, line: Some(line_of(value.span().start)) }
    }
}

impl From<&serde_json::Value> for Tree {
    fn from(value: &serde_json::Value) -> Self {
        use serde_json::Value;
        let content = match value {
            Value::Object(map) => {
                let given = map.iter().filter(|(_, v)| !v.is_null());
                Content::Table(given.map(|(key, v)| (key.clone(), v.into())).collect())
            }
            Value::Array(list) => Content::List(list.iter().map(Self::from).collect()),
            Value::String(text) => Content::Scalar(text.as_str().into()),
            Value::Bool(b) => Content::Scalar(Scalar::Bool(*b)),
            Value::Number(n) => {
                let float = || Scalar::Float(n.as_f64().unwrap_or(f64::NAN));
                Content::Scalar(n.as_u64().map_or_else(float, Scalar::Int))
            }
            Value::Null => Content::Scalar("null".into()),
        };
        Self { content, line: None }
    }
}

/// A value, and where it stands.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    file: &'a str,
    path: String,
    notation: Notation,
    tree: &'a Tree,
}

impl<'a> Node<'a> {
    /// Where it stands, for example `schemes[0].quotas`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// An error about this value.
    pub fn fault(&self, why: impl Display) -> FileError {
        let error = FileError::of(self.file, why).at_line(self.tree.line);
        if self.path.is_empty() { error } else { error.at_key(&self.path) }
    }

    /// An error about the value of `key`, or about all of it where that is missing.
    pub fn fault_at(&self, key: &str, why: impl Display) -> FileError {
        match self.get(key) {
            Ok(Some(node)) => node.fault(why),
            _ => self.fault(why),
        }
    }

    fn below(&self, key: &str, tree: &'a Tree) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, tree, ..*self }
    }

    fn table(&self) -> Result<&'a [(String, Tree)], FileError> {
        match (&self.tree.content, self.notation) {
            (Content::Table(table), _) => Ok(table),
            (_, Notation::Toml) => Err(self.fault("this must be a table of keys and values")),
            (_, Notation::Json) => Err(self.fault("this must be an object: {\"key\": value, ...}")),
        }
    }

    /// The value of a key; `None` where it is missing or null.
    pub fn get(&self, key: &str) -> Result<Option<Self>, FileError> {
        let found = self.table()?.iter().find(|(name, _)| name == key);
        Ok(found.map(|(_, tree)| self.below(key, tree)))
    }

    /// The value of a key that must be there.
    pub fn need(&self, key: &str) -> Result<Self, FileError> {
        self.get(key)?.ok_or_else(|| self.fault(format!("'{key}' is missing")))
    }

    /// The elements of a list.
    pub fn items(&self) -> Result<Vec<Self>, FileError> {
        let Content::List(list) = &self.tree.content else {
            return Err(self.fault("this must be a list: [...]"));
        };
        let path = |i| match self.notation {
            // The line tells which.
            Notation::Toml => self.path.clone(),
            Notation::Json => format!("{}[{i}]", self.path),
        };
        Ok(list.iter().enumerate().map(|(i, tree)| Self { path: path(i), tree, ..*self }).collect())
    }

    /// The elements of a list, each read by `read`; none where the key is missing.
    pub fn each<T>(&self, key: &str, read: impl Fn(&Self) -> Result<T, FileError>) -> Result<Vec<T>, FileError> {
        let list = self.get(key)?.map(|list| list.items()).transpose()?.unwrap_or_default();
        list.iter().map(read).collect()
    }

    /// What is read of a key's value that may be missing.
    pub fn part<T>(&self, key: &str, read: impl Fn(&Self) -> Result<T, FileError>) -> Result<Option<T>, FileError> {
        self.get(key)?.map(|node| read(&node)).transpose()
    }

    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.tree.content, Content::List(_))
    }

    /// Whether it is a list or a table without elements.
    pub fn is_empty(&self) -> bool {
        match &self.tree.content {
            Content::Scalar(_) => false,
            Content::List(list) => list.is_empty(),
            Content::Table(table) => table.is_empty(),
        }
    }

    /// The value, where it is a single one.
    pub fn scalar(&self) -> Option<&'a Scalar> {
        match &self.tree.content {
            Content::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Refuses keys that are not among `known`: what they ask for would silently not be done. In damo's files, which
    /// name every key, those that ask for nothing are passed over.
    pub fn only(&self, known: &[&str]) -> Result<(), FileError> {
        let asks = |node: &Self| match (self.notation, node.scalar()) {
            (Notation::Toml, _) => true,
            (Notation::Json, None) => !node.is_empty(),
            (Notation::Json, Some(Scalar::Text(text))) => !(text.is_empty() || text == "0"),
            (Notation::Json, Some(scalar)) => {
                !matches!(scalar, Scalar::Bool(false) | Scalar::Int(0) | Scalar::Float(0.0))
            }
        };
        let stranger = self.table()?.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        match stranger.map(|(key, tree)| (key, self.below(key, tree))).find(|(_, node)| asks(node)) {
            None => Ok(()),
            Some((key, node)) => {
                let list = known.join(", ");
                Err(node.fault(format!("unknown field `{key}`: Isotherm knows {list} here; remove it")))
            }
        }
    }

    /// The value, read by `read`.
    pub fn read<T, E: Display>(&self, read: impl Fn(&Scalar) -> Result<T, E>) -> Result<T, FileError> {
        let scalar = self.scalar().ok_or_else(|| self.fault("this must be a text, a number, true or false"))?;
        read(scalar).map_err(|why| self.fault(why))
    }

    /// The value of a key that may be missing.
    pub fn optional<T, E: Display>(
        &self,
        key: &str,
        read: impl Fn(&Scalar) -> Result<T, E>,
    ) -> Result<Option<T>, FileError> {
        self.part(key, |node| node.read(&read))
    }
}
