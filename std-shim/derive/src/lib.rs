//! The derive macro of `unisono::Equivalence`, by which structs with padding, and with fields of any such type, are
//! sent.

use proc_macro::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Index, Member, parse_macro_input, parse_quote};

/// Implements `unisono::Equivalence` for a struct whose fields implement it: the value is its fields, one after the
/// other, without padding.
#[proc_macro_derive(Equivalence)]
pub fn derive_equivalence(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput)).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(mut input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "Equivalence can be derived for structs only"));
    };
    let types: Vec<_> = data.fields.iter().map(|field| field.ty.clone()).collect();
    let members: Vec<Member> = match &data.fields {
        Fields::Named(named) => named.named.iter().filter_map(|field| field.ident.clone()).map(Member::Named).collect(),
        Fields::Unnamed(_) | Fields::Unit => (0..types.len()).map(|at| Member::Unnamed(Index::from(at))).collect(),
    };
    let name = &input.ident;
    let clause = input.generics.make_where_clause();
    for of in &types {
        clause.predicates.push(parse_quote!(#of: ::unisono::Equivalence));
    }
    let (generics, arguments, clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::unisono::Equivalence for #name #arguments #clause {
            const BYTES: usize = 0 #(+ <#types as ::unisono::Equivalence>::BYTES)*;

            fn write(&self, bytes: &mut ::unisono::EquivalenceWriter<'_>) {
                #(::unisono::Equivalence::write(&self.#members, bytes);)*
            }

            fn read(bytes: &mut ::unisono::EquivalenceReader<'_>) -> ::core::option::Option<Self> {
                ::core::option::Option::Some(Self { #(#members: ::unisono::Equivalence::read(bytes)?),* })
            }
        }
    })
}
