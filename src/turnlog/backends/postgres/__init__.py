"""The PostgreSQL backend: sessions as rows, frames as `bytea`, leases on the database's clock."""
