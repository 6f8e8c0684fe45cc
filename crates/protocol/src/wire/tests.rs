use super::*;

#[test]
fn varints() {
    let check = |bytes: &[u8], expected: Result<u64, Fault>| {
        let mut r = Reader::new(bytes);
        assert_eq!(r.varint().map_err(|e| e.fault), expected, "{bytes:x?}");
    };
    check(&[0], Ok(0));
    check(&[0x7f], Ok(127));
    check(&[0x80, 0x01], Ok(128));
    check(&[0x80, 0x00], Ok(0));
    check(&[0xff; 9], Err(Fault::TruncatedVarint));
    check(&[0x80], Err(Fault::TruncatedVarint));
    check(&[], Err(Fault::TruncatedVarint));
    check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Ok(u64::MAX));
    check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Err(Fault::LongVarint));
    check(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Err(Fault::LongVarint));
}

#[test]
fn tags() {
    let check = |bytes: &[u8], expected: Result<Option<Tag>, Fault>| {
        let mut r = Reader::new(bytes);
        assert_eq!(r.tag().map_err(|e| e.fault), expected, "{bytes:x?}");
    };
    check(&[], Ok(None));
    check(&[0x0a], Ok(Some(tag(1, WireType::Len))));
    check(&[0x09], Ok(Some(tag(1, WireType::Fixed64))));
    check(&[0x7d], Ok(Some(15 << 3 | 5)));
    check(&[0x80, 0x01], Ok(Some(tag(16, WireType::Varint))));
    check(&[0x02], Err(Fault::FieldNumber));
    check(&[0x0b], Err(Fault::WireType));
    check(&[0x0c], Err(Fault::WireType));
    check(&[0x0e], Err(Fault::WireType));
    check(&[0x0f], Err(Fault::WireType));
    check(&[0x83, 0x01], Err(Fault::WireType));
    check(&[0xff, 0xff, 0xff, 0xff, 0x7f], Err(Fault::FieldNumber));
}

#[test]
fn offsets_count_from_the_body() {
    // a message of two bytes has a string that claims to be longer
    let body = [0x0a, 0x02, 0x0a, 0x05, 0x00, 0x00, 0x00, 0x00];
    let mut r = Reader::new(&body);
    r.tag().unwrap();
    let mut inner = r.message().unwrap();
    assert_eq!((inner.at(), r.at()), (2, 4));
    inner.tag().unwrap();
    assert_eq!(inner.len_field(), Err(WireError { offset: 3, fault: Fault::Overrun }));
}

#[test]
fn skips() {
    let body = [0x08, 0x96, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 0x01, 0xff, 0x25, 1, 2, 3, 4];
    let mut r = Reader::new(&body);
    let mut fields = Vec::new();
    while let Some(tag) = r.tag().unwrap() {
        fields.push(field_of(tag));
        r.skip_unknown(tag, &[7]).unwrap();
    }
    assert_eq!(fields, [1, 2, 3, 4]);
    let mut cut = Reader::new(&body[..18]);
    let last = std::iter::from_fn(|| match cut.tag() {
        Ok(Some(tag)) => Some(cut.skip(tag)),
        _ => None,
    })
    .last();
    assert_eq!(last, Some(Err(WireError { offset: 16, fault: Fault::TruncatedFixed })));
    let mut known = Reader::new(&body);
    let tag = known.tag().unwrap().unwrap();
    assert_eq!(known.skip_unknown(tag, &[1]).unwrap_err().fault, Fault::Mismatch);
}
