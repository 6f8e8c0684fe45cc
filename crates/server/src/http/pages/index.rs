use axum::response::Response;

pub(super) async fn index() -> Response {
    super::page(include_str!("index.html"))
}
