use super::*;

#[test]
fn what_a_job_is_told_travels_as_text() {
    let names = NameForm::Streaming(shardmill_core::Format::Mds);
    let mut staging = Staging::fresh("job7", names).unwrap();
    staging.mode = SaveMode::Append;
    staging.first_part = 12;
    staging.base = Some("abc".to_owned());
    assert_eq!(Staging::parse(&staging.to_json()).unwrap(), staging);
    for text in [
        "",
        "{}",
        "{\"version\":2}",
        &staging.to_json().replace("job7", "job-7"),
        &staging.to_json().replace("append", "merge"),
        &staging.to_json().replace("mds", "tar"),
        &staging.to_json().replace("12", "12000000000"),
    ] {
        assert!(Staging::parse(text).is_err(), "{text}");
    }
}
