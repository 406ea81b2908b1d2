//! Complete views, page by page, and how far the cluster is. Tests: `watch/tests.rs`.

use std::sync::Arc;

use apis::ObservedObject;
use http::Request;
use kube::api::ListParams;
use model::{ResourceVersion, Text};

use super::error::{Error, failed, rejected};
use super::{ACCEPT_JSON, LIST_TIMEOUT, SourceWatch, prepared};
use crate::client::exchange;
use crate::watch::decode::{self, ObjectType};
use crate::watch::projection;
use crate::watch::sources::collection;

/// Objects in one page of a list.
const LIST_PAGE_SIZE: u32 = 500;

const ACCEPT_METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A complete view of one source.
pub(super) struct ListResult {
    /// Where a watch goes on; `None` when the resource is not served.
    pub(super) version: Option<String>,
    pub(super) at: ResourceVersion,
    pub(super) items: Vec<ObservedObject>,
}

impl SourceWatch {
    /// A complete view of the source; an empty one where it is not installed (yet).
    pub(super) async fn list_if_served(&self) -> Result<ListResult, Error> {
        let source = &self.source;
        let view = match self.list().await {
            Err(Error::Missing) if source.optional => {
                tracing::warn!(path = source.path, "not served (yet): install its CustomResourceDefinition");
                ListResult { version: None, at: self.present_version().await?, items: Vec::new() }
            }
            other => other?,
        };
        self.status.served(&source.path, view.version.is_some());
        Ok(view)
    }

    /// A complete view of the source, the newest there is.
    async fn list(&self) -> Result<ListResult, Error> {
        let source = &self.source;
        let mut items = Vec::new();
        let mut next = String::new();
        let mut limit = LIST_PAGE_SIZE;
        loop {
            let params = ListParams {
                label_selector: Some(source.selector.clone()).filter(|selector| !selector.is_empty()),
                limit: (limit > 0).then_some(limit),
                continue_token: Some(next).filter(|next| !next.is_empty()),
                ..ListParams::default()
            };
            let request = kube::core::Request::new(&*source.path).list(&params).map_err(failed)?;
            let accept = if source.metadata_only { ACCEPT_METADATA_LIST } else { ACCEPT_JSON };
            let page = match self.page(request, accept, &source.object_type).await {
                // The rest of the pages is gone: once more from the start, in one piece.
                Err(Error::Expired) if limit > 0 => {
                    (next, limit) = (String::new(), 0);
                    items.clear();
                    continue;
                }
                page => page?,
            };
            items
                .extend(page.items.into_iter().filter_map(|item| ObservedObject::read(&self.registry, Arc::new(item))));
            if page.next.is_empty() {
                let at = decode::number(&page.version);
                return Ok(ListResult { version: Some(page.version), at, items });
            }
            next = page.next;
        }
    }

    async fn page(
        &self,
        request: Request<Vec<u8>>,
        accept: &'static str,
        object_type: &ObjectType,
    ) -> Result<decode::Page, Error> {
        let answer = exchange::exchange(&self.client, prepared(request, accept), LIST_TIMEOUT).await?;
        self.metrics.watch_heard(self.kind);
        if !answer.status.is_success() {
            return Err(rejected(answer.status.as_u16(), &answer.body));
        }
        decode::page(&answer.body, object_type).map_err(|error| Error::Broken(format!("unreadable list: {error}")))
    }

    /// Whether the cluster is as far as `version`: [`Error::Older`] when it is not.
    pub(super) async fn check_not_regressed(&self, version: &str) -> Result<(), Error> {
        let source = &self.source;
        let present = self.version_of(&source.path, &source.object_type).await?;
        if present < decode::number(version) { Err(Error::Older) } else { Ok(()) }
    }

    /// The store's present version, for a view of something that is not there: that of something that is.
    async fn present_version(&self) -> Result<ResourceVersion, Error> {
        let object_type =
            ObjectType { api_version: Text::from("v1"), kind: Text::from("Node"), fields: projection::VERSION };
        self.version_of(&collection("v1", "nodes", None), &object_type).await
    }

    /// The present version of a collection.
    pub(super) async fn version_of(&self, path: &str, object_type: &ObjectType) -> Result<ResourceVersion, Error> {
        // Without a selector: with one the server would look at every object until it has found one.
        let params = ListParams { limit: Some(1), ..ListParams::default() };
        let request = kube::core::Request::new(path).list(&params).map_err(failed)?;
        Ok(decode::number(&self.page(request, ACCEPT_METADATA_LIST, object_type).await?.version))
    }
}
