//! `docs/api` lists the public API of the libraries, so that a review sees each change.
//!
//! The lists are made from the source with its macros expanded and all features enabled. `cargo xtask api` writes them.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::OnceLock};

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Attribute, Fields, Ident, ImplItem, Item, ItemImpl, Meta, Signature, TraitItem, Type, UseTree,
    Visibility,
};

use xtask::workspace::LIBRARIES;

use crate::support::real::skip;

/// Requires C headers, without which `cargo xtask test` does not build it.
const GSSAPI: &str = "docent-gssapi";

/// The files with the expanded source of each library: of [`GSSAPI`] only if it can be built.
///
/// All are expanded at once: the features of a library depend on the other packages of the command.
fn expanded() -> &'static BTreeMap<&'static str, PathBuf> {
    static FILES: OnceLock<BTreeMap<&str, PathBuf>> = OnceLock::new();
    FILES.get_or_init(|| {
        let gssapi = xtask::gssapi_headers().is_ok().then_some(GSSAPI);
        let libraries: Vec<_> = LIBRARIES.into_iter().chain(gssapi).collect();
        let files = xtask::expand(&libraries).unwrap();
        libraries.into_iter().zip(files).collect()
    })
}

#[test]
fn the_public_api_is_the_listed_one() {
    assert_listed(&LIBRARIES);
}

#[test]
fn the_public_api_of_gssapi_is_the_listed_one() {
    match xtask::gssapi_headers() {
        Ok(()) => assert_listed(&[GSSAPI]),
        Err(missing) => skip(&format!("{GSSAPI} cannot be built: {missing}")),
    }
}

fn assert_listed(libraries: &[&str]) {
    let bless = std::env::var_os("DOCENT_BLESS").is_some();
    let directory = xtask::workspace::root().join("docs/api");
    let mut differences = String::new();
    for library in libraries {
        let source = fs::read_to_string(&expanded()[library]).unwrap();
        let source = without_bodies(source.parse().unwrap());
        let items = syn::parse2::<syn::File>(source).unwrap().items;
        let (list, foreign) = list(&library.replace('-', "_"), items);
        assert!(list.len() > 20, "{library}: {list:?}");
        assert!(foreign.is_empty(), "docs/decisions/foreign-types.md: {foreign:#?}");
        let path = directory.join(format!("{library}.txt"));
        if bless {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, list.join("\n") + "\n").unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        let kept: Vec<_> = kept.lines().collect();
        let removed = kept.iter().filter(|line| !list.iter().any(|other| other == *line));
        removed.for_each(|line| differences += &format!("{library}: - {line}\n"));
        let added = list.iter().filter(|line| !kept.contains(&line.as_str()));
        added.for_each(|line| differences += &format!("{library}: + {line}\n"));
    }
    assert!(
        differences.is_empty(),
        "the public API has changed; `cargo xtask api` writes docs/api:\n{differences}"
    );
}

/// The tokens with the bodies of all functions empty: they are no API, and expanded macros in them need not parse.
fn without_bodies(tokens: TokenStream) -> TokenStream {
    let (mut is_fn, mut in_signature) = (false, false);
    let tokens = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            let is_body = std::mem::take(&mut in_signature);
            let inner = if is_body { TokenStream::new() } else { without_bodies(group.stream()) };
            Group::new(Delimiter::Brace, inner).into()
        }
        token => {
            in_signature |= is_fn && matches!(token, TokenTree::Ident(_));
            in_signature &= !matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ';');
            is_fn = matches!(&token, TokenTree::Ident(ident) if ident == "fn");
            token
        }
    });
    tokens.collect()
}

/// The names of a module, from the root of the crate.
type ModulePath = Vec<String>;

/// A module: its items and those that it imports.
#[derive(Default)]
struct Module {
    items: Vec<Item>,
    imports: Vec<Import>,
}

/// `use path as name`, or `use path::*` with the name `*`.
struct Import {
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// The item or module that a path resolves to.
enum Target {
    Module(ModulePath),
    /// An item, by its module and name.
    Item(ModulePath, String),
    External(String),
}

/// Crates whose types may not be in a signature, and the exceptions: docs/decisions/foreign-types.md.
const FOREIGN: [&str; 4] = ["tokio::", "tokio_util::", "rustls", "tokio_rustls::"];
const ALLOWED: [&str; 2] = ["tokio::io::AsyncRead", "tokio::io::AsyncWrite"];

/// The lines of the list of a crate, in the order of their paths, and those with foreign types.
fn list(name: &str, items: Vec<Item>) -> (Vec<String>, Vec<String>) {
    let mut api = Api::default();
    api.read(Vec::new(), items);
    api.export(&Vec::new(), name);
    api.export_impls();
    api.lines.sort_by_cached_key(|line| (subject(line, name).to_owned(), line.clone()));
    api.lines.dedup();
    (api.lines, api.foreign)
}

/// The path that a line is about.
fn subject<'a>(line: &'a str, library: &str) -> &'a str {
    let after = |text: &str| line.rfind(text).map(|at| at + text.len());
    let implemented = if line.starts_with("impl") { after(" for ") } else { None };
    let renamed = if line.starts_with("pub use") { after(" as ") } else { None };
    let start = implemented.or(renamed).or_else(|| line.find(&format!("{library}::")));
    let path = &line[start.unwrap_or_default()..];
    path.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next().unwrap_or_default()
}

#[derive(Default)]
struct Api {
    modules: BTreeMap<ModulePath, Module>,
    /// The public path of each item that has one, by its module and name. The shortest, if there are several.
    public: BTreeMap<(ModulePath, String), String>,
    lines: Vec<String>,
    /// The lines with foreign types that are not allowed in them.
    foreign: Vec<String>,
}

impl Api {
    /// Adds lines, and records those that name a type of a foreign crate, also by an import of their module.
    fn add(&mut self, module: &ModulePath, lines: Vec<String>) {
        let is_foreign = |word: &str| {
            let path: Vec<_> = word.split("::").map(str::to_owned).collect();
            let is_type = path.len() > 1 || word.starts_with(char::is_uppercase);
            is_type
                && matches!(self.resolve(module, &path), Target::External(target)
                    if FOREIGN.iter().any(|of| target.starts_with(of)) && !ALLOWED.contains(&&*target))
        };
        let words = |line: &String| {
            line.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c))
                .any(|word| is_foreign(word.trim_matches(':')))
        };
        let mut foreign: Vec<_> = lines.iter().filter(|line| words(line)).cloned().collect();
        self.foreign.append(&mut foreign);
        self.lines.extend(lines);
    }

    fn read(&mut self, path: ModulePath, items: Vec<Item>) {
        let mut module = Module::default();
        for item in items {
            match &item {
                Item::Mod(inner) => {
                    let mut path = path.clone();
                    path.push(inner.ident.to_string());
                    self.read(
                        path,
                        inner.content.clone().map_or_else(Vec::new, |(_, items)| items),
                    );
                }
                Item::Use(import) => {
                    let is_public = is_public(&import.vis) && !is_hidden(&import.attrs);
                    imports(&import.tree, &mut Vec::new(), is_public, &mut module.imports);
                }
                _ => {}
            }
            module.items.push(item);
        }
        self.modules.insert(path, module);
    }

    /// Finds what a path means in a module.
    fn resolve(&self, from: &ModulePath, path: &[String]) -> Target {
        self.resolve_within(from, path, 16)
    }

    /// Finds what a path means in a module, after a limited number of steps: modules may import each other's names.
    fn resolve_within(&self, from: &ModulePath, path: &[String], steps: usize) -> Target {
        let Some(steps) = steps.checked_sub(1) else { return Target::External(path.join("::")) };
        let Some((first, rest)) = path.split_first() else { return Target::Module(from.clone()) };
        match first.as_str() {
            "crate" => return self.resolve_within(&Vec::new(), rest, steps),
            "self" => return self.resolve_within(from, rest, steps),
            "super" => return self.resolve_within(&from[..from.len() - 1].to_vec(), rest, steps),
            _ => {}
        }
        let mut inner = from.clone();
        inner.push(first.clone());
        if self.modules.contains_key(&inner) {
            return self.resolve_within(&inner, rest, steps);
        }
        let module = &self.modules[from];
        if module.items.iter().any(|item| name(item).is_some_and(|name| name == *first)) {
            return Target::Item(from.clone(), first.clone());
        }
        if let Some(import) = module.imports.iter().find(|import| import.name == *first) {
            // The `a` in `use a::a` is not the imported name.
            if import.path != path {
                return self.resolve_within(from, &[&import.path, rest].concat(), steps);
            }
        }
        for import in module.imports.iter().filter(|import| import.name == "*") {
            if let Target::Module(other) = self.resolve_within(from, &import.path, steps)
                && other != *from
                && let target @ (Target::Module(_) | Target::Item(..)) =
                    self.resolve_within(&other, path, steps)
            {
                return target;
            }
        }
        Target::External(path.join("::"))
    }

    /// Lists the public items of a module under a public path.
    fn export(&mut self, path: &ModulePath, public: &str) {
        let module = &self.modules[path];
        let own = module.items.iter().filter(|item| is_exported(item)).filter_map(name);
        let own = own.map(|name| (name.clone(), vec!["self".to_owned(), name]));
        let mut exports: Vec<_> = own.collect();
        let public_imports = module.imports.iter().filter(|import| import.is_public);
        exports.extend(public_imports.map(|import| (import.name.clone(), import.path.clone())));
        for (name, target) in exports {
            let shown = format!("{public}::{name}");
            match self.resolve(path, &target) {
                Target::Module(inner) if name == "*" => self.export(&inner, public),
                Target::Module(inner) => {
                    self.lines.push(format!("pub mod {shown}"));
                    self.export(&inner, &shown);
                }
                Target::Item(module, original) => self.export_item(module, original, shown),
                Target::External(target) => {
                    self.add(path, vec![format!("pub use {target} as {shown}")]);
                }
            }
        }
    }

    fn export_item(&mut self, module: ModulePath, original: String, shown: String) {
        let items = self.modules[&module].items.iter().filter(|item| is_exported(item));
        // A type and a function, or a macro, may share a name.
        let mut lines = Vec::new();
        for item in items.filter(|item| name(item).is_some_and(|name| name == original)) {
            describe(item, &shown, &mut lines);
        }
        self.add(&module, lines);
        let known = self.public.entry((module, original)).or_insert_with(|| shown.clone());
        if shown.len() < known.len() {
            *known = shown;
        }
    }

    /// Lists the implementations of public types.
    fn export_impls(&mut self) {
        let mut lines = Vec::new();
        for (path, module) in &self.modules {
            let mut of_module = Vec::new();
            for item in &module.items {
                let Item::Impl(item) = item else { continue };
                if is_hidden(&item.attrs) {
                    continue;
                }
                let target = match type_path(&item.self_ty) {
                    Some(names) => self.resolve(path, &names),
                    None => continue,
                };
                let Target::Item(module, name) = target else { continue };
                if let Some(public) = self.public.get(&(module, name)) {
                    describe_impl(item, public, &mut of_module);
                }
            }
            lines.push((path.clone(), of_module));
        }
        lines.into_iter().for_each(|(path, of_module)| self.add(&path, of_module));
    }
}

fn imports(tree: &UseTree, path: &mut Vec<String>, is_public: bool, all: &mut Vec<Import>) {
    let mut add = |name: String, path: Vec<String>| all.push(Import { name, path, is_public });
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            imports(&inner.tree, path, is_public, all);
            path.pop();
        }
        UseTree::Name(inner) if inner.ident == "self" => {
            add(path.last().cloned().unwrap_or_default(), path.clone());
        }
        UseTree::Name(inner) => {
            let name = inner.ident.to_string();
            add(name.clone(), [path.clone(), vec![name]].concat());
        }
        UseTree::Rename(inner) => {
            let original = [path.clone(), vec![inner.ident.to_string()]].concat();
            add(inner.rename.to_string(), original);
        }
        UseTree::Glob(_) => add("*".to_owned(), path.clone()),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| imports(tree, path, is_public, all));
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    })
}

fn is_non_exhaustive(attributes: &[Attribute]) -> &'static str {
    let marked = attributes.iter().any(|attribute| attribute.path().is_ident("non_exhaustive"));
    if marked { "#[non_exhaustive] " } else { "" }
}

/// The name, visibility and attributes of an item that can be exported.
fn head(item: &Item) -> Option<(&Ident, &Visibility, &[Attribute])> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Fn(item) => (&item.sig.ident, &item.vis, &item.attrs),
        Item::Mod(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Static(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Struct(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Trait(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Type(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Union(item) => (&item.ident, &item.vis, &item.attrs),
        _ => return None,
    })
}

/// The name that an item defines, if it can be exported.
fn name(item: &Item) -> Option<String> {
    head(item).map(|(name, ..)| name.to_string())
}

fn is_exported(item: &Item) -> bool {
    head(item)
        .is_some_and(|(_, visibility, attributes)| is_public(visibility) && !is_hidden(attributes))
}

/// The path of a type, without references: `&'a Name<T>` is `Name`.
fn type_path(of: &Type) -> Option<Vec<String>> {
    match of {
        Type::Path(path) => {
            Some(path.path.segments.iter().map(|segment| segment.ident.to_string()).collect())
        }
        Type::Reference(reference) => type_path(&reference.elem),
        Type::Group(group) => type_path(&group.elem),
        Type::Paren(paren) => type_path(&paren.elem),
        _ => None,
    }
}

/// Adds the lines of an item: itself, and its fields, variants or methods.
fn describe(item: &Item, shown: &str, lines: &mut Vec<String>) {
    match item {
        Item::Const(item) => lines.push(format!("pub const {shown}: {}", text(&item.ty))),
        Item::Static(item) => lines.push(format!("pub static {shown}: {}", text(&item.ty))),
        Item::Fn(item) => lines.push(format!("pub {}", function(&item.sig, shown))),
        Item::Type(item) => {
            let generics = text(&item.generics);
            lines.push(format!("pub type {shown}{generics} = {}", text(&item.ty)));
        }
        Item::Struct(item) => {
            let mark = is_non_exhaustive(&item.attrs);
            let (generics, clause) = generics(&item.generics);
            lines.push(format!("{mark}pub struct {shown}{generics}{clause}"));
            fields(&item.fields, shown, true, lines);
        }
        Item::Enum(item) => {
            let mark = is_non_exhaustive(&item.attrs);
            let (generics, clause) = generics(&item.generics);
            lines.push(format!("{mark}pub enum {shown}{generics}{clause}"));
            for variant in item.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
                let mark = is_non_exhaustive(&variant.attrs);
                let number = variant.discriminant.as_ref();
                let number = number.map_or_else(String::new, |(_, n)| format!(" = {}", text(n)));
                let shown = format!("{shown}::{}", variant.ident);
                lines.push(format!("{mark}variant {shown}{number}"));
                fields(&variant.fields, &shown, false, lines);
            }
        }
        Item::Trait(item) => {
            let (generics, clause) = generics(&item.generics);
            let bounds = text(&item.supertraits);
            let colon = if bounds.is_empty() { "" } else { ": " };
            lines.push(format!("pub trait {shown}{generics}{colon}{bounds}{clause}"));
            for item in &item.items {
                match item {
                    TraitItem::Fn(item) if !is_hidden(&item.attrs) => {
                        let default = if item.default.is_some() { " { .. }" } else { "" };
                        let shown = format!("{shown}::{}", item.sig.ident);
                        lines.push(format!("trait {}{default}", function(&item.sig, &shown)));
                    }
                    TraitItem::Type(item) => {
                        let (bounds, generics) = (text(&item.bounds), text(&item.generics));
                        lines.push(format!(
                            "trait type {shown}::{}{generics}: {bounds}",
                            item.ident
                        ));
                    }
                    TraitItem::Const(item) => {
                        let of = text(&item.ty);
                        lines.push(format!("trait const {shown}::{}: {of}", item.ident));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn fields(fields: &Fields, shown: &str, marked: bool, lines: &mut Vec<String>) {
    let mut private = false;
    for (number, field) in fields.iter().enumerate() {
        if marked && (!is_public(&field.vis) || is_hidden(&field.attrs)) {
            private = true;
            continue;
        }
        let name = field.ident.as_ref().map_or_else(|| number.to_string(), ToString::to_string);
        lines.push(format!("field {shown}::{name}: {}", text(&field.ty)));
    }
    if private {
        lines.push(format!("field {shown}::(private)"));
    }
}

/// The generic parameters and the where clause.
fn generics(generics: &syn::Generics) -> (String, String) {
    let clause =
        generics.where_clause.as_ref().map_or_else(String::new, |c| format!(" {}", text(c)));
    (text(generics), clause)
}

fn function(signature: &Signature, shown: &str) -> String {
    let Signature { constness, asyncness, inputs, output, .. } = signature;
    let (parameters, clause) = generics(&signature.generics);
    let before = text(&quote!(#constness #asyncness fn));
    let after = text(&quote!((#inputs) #output));
    format!("{before} {shown}{parameters}{after}{clause}")
}

/// Traits that a derive implements beside the one it is named after, depending on the compiler version.
const DERIVED: [&str; 3] = ["StructuralPartialEq", "TrivialClone", "UseCloned"];

fn describe_impl(item: &ItemImpl, shown: &str, lines: &mut Vec<String>) {
    let (parameters, clause) = generics(&item.generics);
    let Some((not, path, _)) = &item.trait_ else {
        for item in &item.items {
            match item {
                ImplItem::Fn(item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
                    let shown = format!("{shown}::{}", item.sig.ident);
                    let bounds = bounds(&parameters, &clause);
                    lines.push(format!("pub {}{bounds}", function(&item.sig, &shown)));
                }
                ImplItem::Const(item) if is_public(&item.vis) && !is_hidden(&item.attrs) => {
                    lines.push(format!("pub const {shown}::{}: {}", item.ident, text(&item.ty)));
                }
                _ => {}
            }
        }
        return;
    };
    let Some(last) = path.segments.last() else { return };
    if DERIVED.iter().any(|name| last.ident == name) {
        return;
    }
    let not = if not.is_some() { "!" } else { "" };
    let of = text(&item.self_ty).replacen(&type_path(&item.self_ty).unwrap().join("::"), shown, 1);
    lines.push(format!("impl{parameters} {not}{} for {of}{clause}", text(last)));
    for item in &item.items {
        if let ImplItem::Type(item) = item {
            let trait_name = &last.ident;
            let of = text(&item.ty);
            lines.push(format!("impl type <{shown} as {trait_name}>::{} = {of}", item.ident));
        }
    }
}

/// The bounds under which a method of a generic type exists.
fn bounds(parameters: &str, clause: &str) -> String {
    if parameters.contains(':') || !clause.is_empty() {
        format!(" (impl{parameters}{clause})")
    } else {
        String::new()
    }
}

/// Tokens as text, in a form that does not depend on the layout of their source.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    // Expanded macros name types of the standard library by their full path.
    for prefix in ["::core::", "::std::", "::alloc::"] {
        text = text.replace(prefix, &prefix[2..]);
    }
    text.trim().to_owned()
}

fn write(tokens: TokenStream, text: &mut String) {
    let mut is_joint = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                write(group.stream(), text);
                text.truncate(text.trim_end().trim_end_matches(',').len());
                text.push_str(close);
                is_joint = false;
            }
            TokenTree::Punct(punct) => {
                let sign = punct.as_char();
                let spaced = matches!(sign, '=' | '+' | '|' | '-') && !is_joint;
                if spaced && !text.ends_with([' ', '(']) {
                    text.push(' ');
                }
                text.push(sign);
                is_joint = punct.spacing() == Spacing::Joint;
                let ends_arrow = text.ends_with("->") || text.ends_with("=>");
                let ends_path = sign == ':' && !is_joint && !text.ends_with("::");
                let ends_item = matches!(sign, ',' | ';') || ends_arrow || ends_path;
                if ends_item || (spaced && !is_joint) {
                    text.push(' ');
                }
            }
            token => {
                if text.ends_with(|c: char| c.is_alphanumeric() || "_])>".contains(c)) {
                    text.push(' ');
                }
                text.push_str(&token.to_string());
                is_joint = false;
            }
        }
    }
}
